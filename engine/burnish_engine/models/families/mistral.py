"""Mistral 7B to Small: Llama with a window over all layers, or, since version 0.2, none. Mixtral and Ministral 3."""

from burnish_engine.models.families.base import Family
from burnish_engine.models.families.experts import ExpertNames

MISTRAL = Family("mistral")
MIXTRAL = Family("mixtral", expert_names=ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2"))
"""Mistral 7B with eight experts a layer."""
MINISTRAL3 = Family("ministral3")
"""Ministral 3: yarn rope, and queries that grow with their position."""
