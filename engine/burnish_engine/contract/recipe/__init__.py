"""The recipe: its schema, and reading and writing it."""
