"""Where a sweep over blocks of pairs runs: threads of this machine, or a cluster."""
