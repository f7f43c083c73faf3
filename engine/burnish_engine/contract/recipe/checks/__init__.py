"""Checks of texts in a recipe that are written in a language of their own: JSON Schema, regular expressions."""
