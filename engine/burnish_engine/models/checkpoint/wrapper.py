"""Find and read the language model in checkpoints that hold other parts beside it, such as one for images.

Burnish trains, exports and runs the language model alone. Its configuration is the `text_config` of config.json; its
tensors have a prefix in the files. Layouts: transformers' conversion_mapping.py (the entry llava and those that refer
to it), and the files that transformers writes. Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from burnish_engine.models.checkpoint.mtp_layers import is_mtp
from burnish_engine.models.families import FAMILIES

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Wrapper:
    """The layout by which one architecture holds its language model.

    Attributes:
        text_type: model_type of the language model where text_config names none.
        part: path of the language model inside transformers' class, with the dot behind it.
    """

    text_type: str
    part: str

    @property
    def prefixes(self) -> dict[str, str]:
        """Map each prefix of stored names to its prefix in the language model alone. The first match counts."""
        return {
            "language_model.model.": "model.",
            "language_model.lm_head.": "lm_head.",
            self.part: "model.",
            "lm_head.": "lm_head.",
        }

    @property
    def key_mapping(self) -> dict[str, str]:
        """The prefixes as regular expressions, for transformers' `from_pretrained(key_mapping=...)`."""
        return {f"^{re.escape(stored)}": text for stored, text in self.prefixes.items() if stored != text}

    def language_model(self, stored: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return the entries of a table by stored names that belong to the language model, keyed by its own names."""
        named = ((self.text_name(name), value) for name, value in stored.items())
        return {name: value for name, value in named if name is not None}

    def text_name(self, stored: str) -> str | None:
        """Return a stored tensor's name in the language model alone; None for tensors of other parts."""
        for prefix, text in self.prefixes.items():
            if stored.startswith(prefix):
                return text + stored.removeprefix(prefix)
        return None

    def module_name(self, text: str) -> str:
        """Return the path of a language model's module or tensor inside transformers' class of the whole model."""
        return self.part + text.removeprefix("model.") if text.startswith("model.") else text


WRAPPERS: dict[str, Wrapper] = {
    whole: Wrapper(family.model_type, part) for family in FAMILIES.values() for whole, part in family.wrappers.items()
}
"""model_type of config.json to how it holds its language model."""


_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_OF_THE_WHOLE = ("eos_token_id", "bos_token_id", "pad_token_id", "dtype", "torch_dtype", "quantization_config")
"""Keys that hold for the language model too where they stand beside text_config."""


def other_parts(stored: Iterable[str], wrapper: Wrapper | None) -> list[str]:
    """Return the names of a checkpoint's parts beside its language model, such as `visual`; empty where there are none.

    Args:
        stored: names of the checkpoint's tensors.
        wrapper: layout of the checkpoint; None where its names are the language model's own.
    """
    others = (name for name in stored if (is_mtp(name) if wrapper is None else wrapper.text_name(name) is None))
    return sorted({name.removeprefix("model.").partition(".")[0] for name in others})


def text_part(config: dict[str, Any]) -> tuple[dict[str, Any], Wrapper | None]:
    """Extract the language model's configuration.

    Args:
        config: the checkpoint's config.json.

    Returns:
        The configuration of the language model alone, and its layout in the checkpoint; the config itself and None
        where the checkpoint is a language model, or where no text_config can be used.
    """
    whole, inner = config.get("model_type"), config.get("text_config")
    wrapper = WRAPPERS.get(whole) if isinstance(whole, str) else None
    if wrapper is None or not isinstance(inner, dict):
        return config, None
    text_type = str(inner.get("model_type") or wrapper.text_type)
    known = FAMILIES.get(text_type)
    sizes = zip(_SIZES, known.config.part_sizes, strict=False) if known else ()
    shared = {key: config[key] for key in _OF_THE_WHOLE if config.get(key) is not None}
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**dict(sizes), **tied, **inner, **shared, "model_type": text_type}, wrapper
