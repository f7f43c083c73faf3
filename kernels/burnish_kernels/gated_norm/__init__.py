"""RMSNorm of each head times a gate."""
