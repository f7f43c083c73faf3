"""Gradients of rotated inputs rotated back, with the adapter's product that is not rotated."""
