"""Attention, full or within a sliding window."""
