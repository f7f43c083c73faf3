"""Run folders, commands, leases and the queue."""
