"""The report: one page about a model and its data."""
