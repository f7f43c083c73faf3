"""Compare the settings of a file with the model's: sizes, norms, rope, windows and context.

What a file should say is worked out here a second time from the model's specification, apart from the writer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.gguf.families import family_of
from burnish_engine.export.gguf.header import GgufHeader

_UNWINDOWED = {"mistral", "phi3"}
"""Families whose sliding window llama.cpp does not compute, so that a file is the model only within it."""


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: key without the architecture's prefix.
        name: name for people.
        wanted: The model's value: a number, a text, or a tuple with one number for each layer.
        default: value that llama.cpp takes where the key is missing; None: the key must be there.
    """

    key: str
    name: str
    wanted: float | str | tuple[float, ...]
    default: float | str | tuple[float, ...] | None = None


def check_settings(header: GgufHeader, spec: DecoderSpec) -> list[str]:
    """Compare every setting.

    Args:
        header: header of the file.
        spec: shape of the model.

    Returns:
        What is wrong, in sentences; empty where nothing is.
    """
    architecture = family_of(spec.family).architecture
    if header.architecture != architecture:
        return [f"Its architecture is {header.architecture!r}; the model's is {architecture!r}."]
    problems = []
    for setting in _settings(spec):
        found = header.metadata.get(f"{architecture}.{setting.key}", setting.default)
        if found is None:
            problems.append(f"It lacks the model's {setting.name} ({setting.key}), {_words(setting.wanted)}.")
        elif not _same(found, setting.wanted):
            problems.append(
                f"Its {setting.name} ({setting.key}) is {_words(found)}; the model's is {_words(setting.wanted)}."
            )
    return problems


def _settings(spec: DecoderSpec) -> list[Setting]:
    window = spec.sliding_window or 0
    context = min(spec.max_context, window) if window and spec.family in _UNWINDOWED else spec.max_context
    usual_head = spec.hidden_size / spec.num_heads  # llama_model::load_hparams
    convolves = [layer.kind == "short_convolution" for layer in spec.layers]
    keys = tuple(0.0 if skipped else float(spec.num_kv_heads) for skipped in convolves)
    made = [
        Setting("block_count", "number of layers", spec.num_layers),
        Setting("embedding_length", "width", spec.hidden_size),
        Setting("feed_forward_length", "feed-forward width", spec.intermediate_size),
        Setting("context_length", "context length", context),
        Setting("attention.head_count", "number of query heads", spec.num_heads),
        Setting("attention.head_count_kv", "number of key heads", keys if any(convolves) else spec.num_kv_heads),
        Setting("attention.key_length", "width of a key", spec.head_dim, usual_head),
        Setting("attention.value_length", "width of a value", spec.head_dim, usual_head),
        Setting("attention.layer_norm_rms_epsilon", "norm epsilon", spec.rms_norm_eps),
        *_rope_settings(spec),
    ]
    if any(convolves):
        made.append(Setting("shortconv.l_cache", "width of the convolutions", spec.conv_width))
    if spec.family == "gemma3_text":
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        usual = tuple(float((index + 1) % 6 != 0) for index in range(spec.num_layers))  # load_swa_pattern
        if window:
            made.append(Setting("attention.sliding_window_pattern", "layers with a window", local, usual))
        made.append(Setting("final_logit_softcapping", "cap of the logits", spec.logit_softcap or 0.0, 0.0))
    if window and spec.family in {"gemma3_text", "phi3"}:
        made.append(Setting("attention.sliding_window", "attention window", window))
    return made


def _rope_settings(spec: DecoderSpec) -> list[Setting]:
    rope = spec.rope
    kind = rope.scaling if rope.scaling in {"linear", "yarn"} else "none"
    rotated = int(spec.head_dim * rope.partial)
    made = [
        Setting("rope.freq_base", "rope base", rope.theta, 10_000.0),
        Setting("rope.dimension_count", "number of rotated dimensions", rotated, spec.head_dim),
        # What a file without a kind of scaling does with a factor, it does linearly.
        Setting("rope.scaling.type", "kind of rope scaling", kind, kind if kind in {"none", "linear"} else None),
        Setting("rope.scaling.factor", "rope scale", rope.factor if kind != "none" else 1.0, 1.0),
    ]
    if rope.scaling in {"yarn", "longrope"} and rope.original_context:
        made.append(Setting("rope.scaling.original_context_length", "original context", rope.original_context))
    if rope.scaling == "longrope":
        made.append(Setting("rope.scaling.attn_factor", "rope's attention factor", rope.attention_factor))
    if spec.family == "gemma3_text" and spec.sliding_window:
        local = (spec.local_rope or rope).theta
        made.append(Setting("rope.freq_base_swa", "rope base of local layers", local, 10_000.0))
    return made


def _same(found: Any, wanted: float | str | tuple[float, ...]) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return bool(found == wanted)
    # A number for each layer, and one for all layers, may say the same.
    values = found if isinstance(found, tuple) else (found,)
    others = wanted if isinstance(wanted, tuple) else (wanted,)
    length = max(len(values), len(others))
    values, others = (part * length if len(part) == 1 else part for part in (values, others))
    return len(values) == len(others) and all(
        math.isclose(float(one), float(other), rel_tol=1e-5) for one, other in zip(values, others, strict=True)
    )


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_words, value))}]"
    return repr(value) if isinstance(value, str) else f"{value:g}"
