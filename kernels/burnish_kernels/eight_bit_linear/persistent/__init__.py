"""The 8-bit product on Hopper, whose programs stay and whose copy engine moves the operands."""
