"""Weights in the block types of GGUF files, decoded to 16 or 32 bits."""
