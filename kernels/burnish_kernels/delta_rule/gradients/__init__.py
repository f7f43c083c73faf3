"""Gradients of queries, keys, values and gates."""
