"""The states between chunks, forward, and their gradients, backward."""
