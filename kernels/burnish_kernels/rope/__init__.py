"""Rotary position embedding of queries and keys in one launch, after the norm of each head where there is one."""
