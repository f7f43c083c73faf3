"""The end of a layer behind its feed-forward, where it has one: an input of its own, and a scale (Gemma 4)."""
