"""Weights to export: reads the adapter, merges it into the base, and writes safetensors."""
