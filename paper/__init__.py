"""The experiments of the paper, run again; README.md maps the paper to the code."""
