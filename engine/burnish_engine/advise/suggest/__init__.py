"""Suggestions: the model, the settings, and the capacity of a machine. Loads no torch."""
