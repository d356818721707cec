"""Write points to files."""
