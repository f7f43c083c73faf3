"""Mistral 7B to Small: Llama with a window over all layers, or, since version 0.2, none."""

from burnish_engine.models.families.base import Family

MISTRAL = Family("mistral")
