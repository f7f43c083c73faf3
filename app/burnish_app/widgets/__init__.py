"""Reusable widgets of the pages."""
