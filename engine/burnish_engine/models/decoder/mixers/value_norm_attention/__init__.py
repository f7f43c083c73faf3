"""Attention with normalized values, whose keys and values other layers may use too (Gemma 4)."""
