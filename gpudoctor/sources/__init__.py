"""Sources: the same raw interface over a live node, a snapshot, a bug report."""
