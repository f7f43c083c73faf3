"""A field of the recipe: its row, its number box, and the groups of rows."""
