"""Write a model in the formats of other systems."""
