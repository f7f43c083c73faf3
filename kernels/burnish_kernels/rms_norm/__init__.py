"""Root-mean-square normalization, optionally with the residual addition before it."""
