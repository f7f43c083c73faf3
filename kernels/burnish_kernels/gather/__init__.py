"""Rows of a table by their numbers; the table may stand in host memory."""
