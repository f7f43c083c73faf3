"""Llama 1 to 3.3, SmolLM2, TinyLlama and what else calls itself llama: the names that others deviate from."""

from burnish_engine.models.families.base import Family

LLAMA = Family("llama")
