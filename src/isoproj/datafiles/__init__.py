"""Files of points: reading and writing the formats that people keep vectors in."""
