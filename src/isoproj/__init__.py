"""isoproj."""
