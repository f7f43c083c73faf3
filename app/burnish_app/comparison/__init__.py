"""Comparison of runs, as plain data: differences to the best one, a filter, replies and curves side by side. No Qt."""
