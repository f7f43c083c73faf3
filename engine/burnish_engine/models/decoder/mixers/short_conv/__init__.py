"""Gated short convolution (LFM2)."""
