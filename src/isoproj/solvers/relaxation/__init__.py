"""The fantope relaxation: dual weights that bound the distortion from below."""
