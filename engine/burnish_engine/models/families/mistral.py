"""Mistral 7B to Small: Llama with a window over all layers, or, since version 0.2, none. And Ministral 3."""

from burnish_engine.models.families.base import Family

MISTRAL = Family("mistral")
MINISTRAL3 = Family("ministral3")
"""Ministral 3: yarn rope, and queries that grow with their position."""
