"""SmolLM3: Llama whose every fourth layer rotates nothing."""

from burnish_engine.models.families.base import Family

SMOLLM3 = Family("smollm3")
