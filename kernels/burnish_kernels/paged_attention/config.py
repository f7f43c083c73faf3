"""Size of a page of keys and values. Loads no torch."""

from __future__ import annotations

PAGE = 64
"""Tokens of a page."""
