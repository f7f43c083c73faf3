"""How fast the training step is on this machine, beside what the hardware allows."""
