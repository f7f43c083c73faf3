"""Model folders, their specification, and the plain transformers + PEFT path."""
