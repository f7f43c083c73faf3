"""Products of 8-bit operands over a frozen weight, with an adapter's product in the same accumulator."""
