"""A release of the engine: its signed description, which names every file with size and hash."""
