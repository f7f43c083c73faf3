"""Products of experts with operands in 8 bits."""
