"""A projection in the form that other systems load."""
