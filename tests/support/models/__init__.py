"""Tiny models of every kind, and what they are compared with."""
