"""What this machine is. Never needs torch."""
