"""Experts in NF4 made codes."""
