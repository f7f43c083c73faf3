"""Gated short convolution over the tokens of a document."""
