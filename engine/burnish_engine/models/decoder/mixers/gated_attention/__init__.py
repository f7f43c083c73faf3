"""Attention whose output a gate scales, head by head (LFM3)."""
