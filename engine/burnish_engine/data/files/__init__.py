"""Finds, unpacks and parses data files and archives into rows of JSON text, and reports what is unreadable."""
