"""Duels: compare two or more recipes under the same conditions and draw conclusions. Loads no torch."""
