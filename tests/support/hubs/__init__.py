"""Model hubs on this machine."""
