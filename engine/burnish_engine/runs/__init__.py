"""Run folders, control, leases and the queue."""
