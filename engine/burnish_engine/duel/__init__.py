"""Duels: two or more recipes under the same conditions, and what may be concluded from it. Loads no torch."""
