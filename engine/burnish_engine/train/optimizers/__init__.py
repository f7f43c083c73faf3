"""The optimizers that a recipe can name, behind one interface for both engines."""
