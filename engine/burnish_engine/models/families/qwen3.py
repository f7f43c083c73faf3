"""Dense Qwen3: Llama with normalized queries and keys."""

from burnish_engine.models.families.base import Family

QWEN3 = Family("qwen3")
