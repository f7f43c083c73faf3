"""The saved work, and the files that it is about."""
