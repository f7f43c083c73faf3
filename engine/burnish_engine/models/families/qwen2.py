"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from burnish_engine.models.families.base import Family

QWEN2 = Family("qwen2")
