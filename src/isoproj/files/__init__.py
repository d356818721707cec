"""Data in and out, and other systems' formats."""
