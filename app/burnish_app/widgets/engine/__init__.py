"""Widgets about the engine: its set-up, and the logs."""
