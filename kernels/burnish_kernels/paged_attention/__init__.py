"""Attention of newest tokens over keys and values in pages, for replies that grow."""
