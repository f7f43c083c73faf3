"""Comparison of two runs, and the list of all runs."""
