"""Checks of a GGUF file's content against the model it claims to be; one module for each kind of content."""
