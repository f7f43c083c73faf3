"""Renders untrusted chat templates in a sandboxed process with limited memory, time and text."""
