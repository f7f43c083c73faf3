"""Chooses, checks and renders chat templates, and finds the supervised characters of the rendered text."""
