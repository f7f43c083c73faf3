"""The engine's own environment, as the window sets it up, updates it and starts it."""
