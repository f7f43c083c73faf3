"""Families of makers that have one or two: each differs from Llama, Qwen or Gemma in a few settings."""
