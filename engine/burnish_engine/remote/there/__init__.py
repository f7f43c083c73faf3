"""Programs of the other machine: the job itself, and the relay that reports its progress."""
