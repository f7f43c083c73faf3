"""Data and chat templates."""
