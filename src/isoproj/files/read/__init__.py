"""Read points from files."""
