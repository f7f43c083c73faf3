"""The storage of a stack's frozen weight, and the products with it: in the compute dtype, or in 8 bits."""
