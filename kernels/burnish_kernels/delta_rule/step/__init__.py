"""One token for each reply."""
