"""Array checks, spectral facts, threads, scratch storage and the file container."""
