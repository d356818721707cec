"""Local search for a basis on the Grassmann manifold."""
