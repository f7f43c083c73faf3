"""The studio as a process: one window, and the command that starts its engine."""
