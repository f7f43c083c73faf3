"""Proof that a file is the model that was trained."""
