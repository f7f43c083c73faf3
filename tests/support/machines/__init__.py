"""Other machines, their hardware and ways to them."""
