"""Causal attention within the documents of a packed sequence."""
