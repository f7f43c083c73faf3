"""The base of all pages."""
