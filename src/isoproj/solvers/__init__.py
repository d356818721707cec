"""Ways to find a good basis and good dual weights; none of them is trusted."""
