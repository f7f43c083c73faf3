"""JSON lines between processes: who serves, who asks, and what keeps the stream whole."""
