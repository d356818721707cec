"""The paper's experiments, the referee and the comparison of methods."""
