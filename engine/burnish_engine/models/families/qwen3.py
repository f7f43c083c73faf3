"""Qwen3, dense and as mixtures of experts: Llama with normalized queries and keys."""

from burnish_engine.models.families.base import Family

QWEN3 = Family("qwen3")
QWEN3_MOE = Family("qwen3_moe")
"""Qwen3-30B-A3B and its relatives."""
