"""Sides of a duel, and the differences between their recipes."""
