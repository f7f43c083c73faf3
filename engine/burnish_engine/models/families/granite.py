"""Granite 3, and the dense ones of Granite 4: Llama with factors for embeddings, attention, halves and logits."""

from burnish_engine.models.families.base import Family

GRANITE = Family("granite")
GRANITE4 = Family("granitemoehybrid")
"""Granite 4 without mixture and without Mamba layers: gate and up are one matrix in the checkpoint."""
