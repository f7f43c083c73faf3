"""Runs, and what continues in them."""
