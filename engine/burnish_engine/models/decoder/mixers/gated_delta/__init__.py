"""Gated delta net (Qwen3.5): a state of fixed size for each head, read by each token."""
