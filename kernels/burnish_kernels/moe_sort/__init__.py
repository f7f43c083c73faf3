"""Sorting of a mixture's token copies by expert: one stable counting sort, no atomics, no word to the host."""
