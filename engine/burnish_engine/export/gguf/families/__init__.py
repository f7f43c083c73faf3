"""Rules that turn each family of checkpoints into a GGUF; `FAMILIES` has one entry per model_type."""

from burnish_engine.advise.facts.gguf_rules import unknown_family
from burnish_engine.contract.errors import UsageError
from burnish_engine.export.gguf.families.base import GgufFamily
from burnish_engine.export.gguf.families.gemma3 import GEMMA3
from burnish_engine.export.gguf.families.gpt_oss import GPT_OSS
from burnish_engine.export.gguf.families.granite import GRANITE, GRANITE4
from burnish_engine.export.gguf.families.lfm2 import LFM2, LFM2_MOE
from burnish_engine.export.gguf.families.llama import LLAMA, MINISTRAL3, MISTRAL, MIXTRAL, SMOLLM3
from burnish_engine.export.gguf.families.olmo2 import OLMO2, OLMOE
from burnish_engine.export.gguf.families.phi3 import PHI3
from burnish_engine.export.gguf.families.qwen import QWEN2, QWEN3, QWEN3_MOE

FAMILIES: dict[str, GgufFamily] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral3": MINISTRAL3,
    "smollm3": SMOLLM3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma3_text": GEMMA3,
    "phi3": PHI3,
    "lfm2": LFM2,
    "granite": GRANITE,
    "granitemoehybrid": GRANITE4,
    "olmo2": OLMO2,
    "qwen3_moe": QWEN3_MOE,
    "olmoe": OLMOE,
    "mixtral": MIXTRAL,
    "lfm2_moe": LFM2_MOE,
    "gpt_oss": GPT_OSS,
}
"""model_type of config.json to the family's entry."""


def family_of(model_type: str) -> GgufFamily:
    """Look up the entry of a model_type.

    Raises:
        UsageError: This family cannot be exported to GGUF.
    """
    family = FAMILIES.get(model_type)
    if family is None:
        raise UsageError(*unknown_family(model_type))
    return family
