"""The program ``isoproj``: its verbs, what they print and how they fail."""
