"""Qwen2, Qwen2.5 and Qwen3, dense and as mixtures: Llama with biases, later with normalized queries and keys."""

from burnish_engine.models.families.base import Family

QWEN2 = Family("qwen2")
"""Qwen2 and Qwen2.5: biases on q, k and v."""
QWEN3 = Family("qwen3")
"""Qwen3: normalized queries and keys."""
QWEN3_MOE = Family("qwen3_moe")
"""Qwen3-30B-A3B and its relatives."""
