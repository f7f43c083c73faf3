"""Predictions made before anything starts: what fits, how large files get. Never needs torch."""
