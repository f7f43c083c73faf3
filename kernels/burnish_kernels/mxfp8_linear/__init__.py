"""Products of 8-bit operands whose blocks of 32 share a power of two, over a frozen weight with an adapter."""
