"""What a model does to its data, for people: a plain dict first, then documents."""
