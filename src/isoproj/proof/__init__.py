"""Bounds recomputed from the data alone; nothing here imports a solver."""
