"""Understands rows: recognizes the columns of a file, converts each row to a conversation and checks its content."""
