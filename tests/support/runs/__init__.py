"""Runs, and what is running in them."""
