"""The window and the server that it talks to."""
