"""Commands about this machine: what it is, and how fast."""
