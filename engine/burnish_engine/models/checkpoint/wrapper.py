"""Find and read the language model in checkpoints that hold other parts beside it, such as one for images.

Burnish trains, exports and runs the language model alone. Its configuration is the `text_config` of config.json; its
tensors have a prefix in the files. Layouts: transformers' conversion_mapping.py (entry "llava" and those that refer to
it), and the files that transformers writes. Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Wrapper:
    """The layout by which one architecture holds its language model.

    Attributes:
        text_type: model_type of the language model where text_config names none.
        part: path of the language model inside transformers' class, with the dot behind it.
    """

    text_type: str
    part: str = "model.language_model."

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
    "gemma3": Wrapper("gemma3_text"),
    "mistral3": Wrapper("mistral"),
    "llava": Wrapper("llama"),
    "llava_next": Wrapper("llama"),
    "llava_onevision": Wrapper("qwen2"),
    "internvl": Wrapper("qwen2"),
    "lfm2_vl": Wrapper("lfm2"),
    "idefics3": Wrapper("llama", "model.text_model."),
    "smolvlm": Wrapper("llama", "model.text_model."),
}
"""model_type of config.json to how it holds its language model."""

_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_USUAL_SIZES = {
    "gemma3_text": (262_208, 2304, 9216, 26, 8),
    "llama": (32_000, 4096, 11_008, 32, 32),
    "mistral": (32_000, 4096, 14_336, 32, 32),
    "ministral3": (131_072, 4096, 14_336, 34, 32),
    "qwen2": (151_936, 4096, 22_016, 32, 32),
    "qwen3": (151_936, 4096, 22_016, 32, 32),
    "lfm2": (65_536, 2560, 12_288, 32, 32),
    "phi3": (32_064, 3072, 8192, 32, 32),
    "smollm3": (128_256, 2048, 11_008, 36, 16),
}
"""Sizes that a text_config may leave out, since transformers writes only what differs there (configuration_*.py)."""
_OF_THE_WHOLE = ("eos_token_id", "bos_token_id", "pad_token_id", "dtype", "torch_dtype", "quantization_config")
"""Keys that hold for the language model too where they stand beside text_config."""


def text_part(config: dict[str, Any]) -> tuple[dict[str, Any], Wrapper | None]:
    """Extract the language model's configuration.

    Args:
        config: the checkpoint's config.json.

    Returns:
        The configuration of the language model alone, and its layout in the checkpoint; the config itself and None
        where the checkpoint is a language model, or where no text_config can be used.
    """
    family, inner = config.get("model_type"), config.get("text_config")
    wrapper = WRAPPERS.get(family) if isinstance(family, str) else None
    if wrapper is None or not isinstance(inner, dict):
        return config, None
    text_type = str(inner.get("model_type") or wrapper.text_type)
    sizes = zip(_SIZES, _USUAL_SIZES[text_type], strict=True) if text_type in _USUAL_SIZES else ()
    shared = {key: config[key] for key in _OF_THE_WHOLE if config.get(key) is not None}
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**dict(sizes), **tied, **inner, **shared, "model_type": text_type}, wrapper
