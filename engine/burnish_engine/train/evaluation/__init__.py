"""Measurements of the model during training: held-out rows and pairs, replies, the loss on a general text."""
