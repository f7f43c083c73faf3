"""Checks of what a GGUF file holds against the model it is said to be, a module for each kind of content."""
