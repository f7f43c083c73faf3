"""Predictions of a run's memory and speed, and of a finished file's. Loads no torch."""
