"""Attention whose output sigmoids scale, head by head (LFM3) or number by number (Qwen3.5)."""
