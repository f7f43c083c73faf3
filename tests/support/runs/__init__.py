"""Runs, and what goes on in them."""
