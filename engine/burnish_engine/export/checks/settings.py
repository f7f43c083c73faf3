"""Compare the settings of a file with the model's: sizes, norms, rope, windows and context.

The expected settings are derived here from the model's specification, independently of the writer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader

_UNWINDOWED = {"cwm", "ministral", "mistral", "ministral3", "mixtral", "phi3"}
"""Families whose sliding window llama.cpp does not compute: the file equals the model only within the window."""

_WINDOWED = {"exaone4", "gemma2", "gemma3_text", "gpt_oss", "granite_swa", "mellum", "olmo3", "phi3"}
"""Families whose files name the window."""


@dataclass(frozen=True)
class MetadataSetting:
    """One setting that a file must have."""

    key: str  # key without the architecture's prefix
    name: str  # name for people
    wanted: float | str | tuple[float, ...]
    """Value of the model: a number, a text, or a tuple with one number for each layer."""
    default: float | str | tuple[float, ...] | None = None
    """Value that llama.cpp takes where the key is missing; None: the key must be there."""


def check_settings(header: GgufHeader, spec: DecoderSpec, drafts: int = 0) -> list[str]:
    """Compare every setting.

    Args:
        header: header of the file.
        spec: shape of the model.
        drafts: number of layers for multi-token prediction that the file has behind the model's own.

    Returns:
        Findings as sentences; empty where nothing is wrong.
    """
    architecture = gguf_rules(spec.family).architecture
    if header.architecture != architecture:
        return [f"Its architecture is {header.architecture!r}; the model's is {architecture!r}."]
    problems = []
    for setting in [*_settings(spec, architecture), *_layer_counts(spec, drafts)]:
        found = header.metadata.get(f"{architecture}.{setting.key}", setting.default)
        if found is None:
            problems.append(f"It lacks the model's {setting.name} ({setting.key}), {_text(setting.wanted)}.")
        elif not _same(found, setting.wanted):
            problems.append(
                f"Its {setting.name} ({setting.key}) is {_text(found)}; the model's is {_text(setting.wanted)}."
            )
    return problems + _untold_turns(header, spec)


def _layer_counts(spec: DecoderSpec, drafts: int) -> list[MetadataSetting]:
    """List the counts of layers, and which of them have a delta net (llama.cpp's models/qwen35.cpp)."""
    made = [
        MetadataSetting("block_count", "number of layers", spec.num_layers + drafts),
        MetadataSetting("nextn_predict_layers", "number of layers for multi-token prediction", drafts, 0.0),
    ]
    if spec.delta is not None:
        recurrent = tuple(float(layer.kind == "gated_delta") for layer in spec.layers) + (0.0,) * drafts
        made.append(MetadataSetting("attention.recurrent_layers", "layers with a delta net", recurrent))
    return made


def _untold_turns(header: GgufHeader, spec: DecoderSpec) -> list[str]:
    """Find pairs of a head that no position turns: the fourth of text is 0 (ggml's `ggml_mrope_cache_init`)."""
    if spec.delta is None:
        return []
    key = "rope.dimension_sections"
    sections = header.metadata.get(f"{header.architecture}.{key}")
    if not isinstance(sections, tuple) or len(sections) < 3 or sum(sections) < 1:
        return [f"It lacks the model's sections of a rope ({key})."]
    for pair in range(int(spec.head_dim * spec.rope.partial) // 2):
        place = pair % sum(sections)
        if place >= 3 * sections[place % 3]:
            return [f"Its sections of a rope ({key}), {_text(sections)}, leave pair {pair} of a head unturned."]
    return []


def _settings(spec: DecoderSpec, architecture: str) -> list[MetadataSetting]:
    window = spec.sliding_window or 0
    context = min(spec.max_context, window) if window and spec.family in _UNWINDOWED else spec.max_context
    usual_head = spec.hidden_size / spec.num_heads  # llama_model::load_hparams
    convolves = [layer.kind == "short_convolution" for layer in spec.layers]
    heads = [spec.of_layer(layer) for layer in spec.layers]
    keys = tuple(0.0 if skipped else float(own.num_kv_heads) for skipped, own in zip(convolves, heads, strict=True))
    widths = {layer.width for layer in spec.layers}
    wide = tuple(float(layer.width or spec.intermediate_size) for layer in spec.layers) if widths - {0} else None
    made = [
        MetadataSetting("embedding_length", "width", spec.hidden_size),
        MetadataSetting(
            "feed_forward_length", "feed-forward width", wide or spec.dense_intermediate_size or spec.intermediate_size
        ),
        MetadataSetting("context_length", "context length", context),
        MetadataSetting("attention.head_count", "number of query heads", spec.num_heads),
        MetadataSetting(
            "attention.head_count_kv", "number of key heads", keys if len(set(keys)) > 1 else spec.num_kv_heads
        ),
        MetadataSetting("attention.key_length", "width of a key", spec.largest_head, usual_head),
        MetadataSetting("attention.value_length", "width of a value", spec.largest_head, usual_head),
        MetadataSetting("attention.layer_norm_rms_epsilon", "norm epsilon", spec.rms_norm_eps),
        *_rope_settings(spec),
        *_expert_settings(spec),
        *_delta_settings(spec),
        *_gemma4_settings(spec),
    ]
    if any(convolves):
        made.append(MetadataSetting("shortconv.l_cache", "width of the convolutions", spec.conv_width))
    if spec.family == "gemma3_text":
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        usual = tuple(float((index + 1) % 6 != 0) for index in range(spec.num_layers))  # load_swa_pattern
        if window:
            made.append(MetadataSetting("attention.sliding_window_pattern", "layers with a window", local, usual))
        made.append(MetadataSetting("final_logit_softcapping", "cap of the logits", spec.logit_softcap or 0.0, 0.0))
    if architecture in {"granite", "granitemoe", "granite_swa"}:
        usual_scale = spec.head_dim**-0.5
        made += [
            MetadataSetting("attention.scale", "scale of the attention scores", spec.attention_scale or usual_scale),
            MetadataSetting("embedding_scale", "factor of the embeddings", spec.embedding_scale),
            MetadataSetting("residual_scale", "factor of the residuals", spec.residual_scale),
            MetadataSetting("logit_scale", "divisor of the logits", spec.logit_divisor),
        ]
    if architecture == "granite":
        made.append(MetadataSetting("rope.scaling.finetuned", "use of positions", float(spec.layers[0].rope), 1.0))
    if architecture == "granite_swa":
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        rotating = tuple(float(layer.rope) for layer in spec.layers)
        made.append(MetadataSetting("attention.sliding_window_pattern", "layers with a window", local))
        made.append(MetadataSetting("attention.rope_pattern", "layers with positions", rotating, 1.0))
    if spec.family == "gpt_oss":
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        usual = tuple(float(index % 2 == 0) for index in range(spec.num_layers))  # load_swa_pattern
        made.append(MetadataSetting("attention.sliding_window_pattern", "layers with a window", local, usual))
    if spec.family == "gemma2":
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        usual = tuple(float(index % 2 == 0) for index in range(spec.num_layers))  # load_swa_pattern
        made += [
            MetadataSetting("attention.sliding_window_pattern", "layers with a window", local, usual),
            MetadataSetting("attn_logit_softcapping", "cap of the attention scores", spec.attention_softcap or 0.0),
            MetadataSetting("final_logit_softcapping", "cap of the logits", spec.logit_softcap or 0.0),
        ]
    if window and spec.family in {"exaone4", "mellum"}:
        local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
        usual = tuple(float((index + 1) % 4 != 0) for index in range(spec.num_layers))  # load_swa_pattern
        made.append(MetadataSetting("attention.sliding_window_pattern", "layers with a window", local, usual))
    if window and spec.family in _WINDOWED:
        made.append(MetadataSetting("attention.sliding_window", "attention window", window))
    return made


def _gemma4_settings(spec: DecoderSpec) -> list[MetadataSetting]:
    """List the settings of Gemma 4 alone (llama.cpp's models/gemma4.cpp, `load_arch_hparams`)."""
    if not spec.value_norm:
        return []
    local = tuple(float(layer.kind == "sliding_attention") for layer in spec.layers)
    borrowed = sum(layer.keys == "borrowed" for layer in spec.layers)
    theta = (spec.local_rope or spec.rope).theta
    return [
        MetadataSetting("attention.shared_kv_layers", "number of layers with keys of others", borrowed, 0.0),
        MetadataSetting("embedding_length_per_layer_input", "width of a layer's own input", spec.per_layer_size),
        MetadataSetting("attention.sliding_window", "attention window", spec.sliding_window or 0),
        MetadataSetting("attention.sliding_window_pattern", "layers with a window", local),
        MetadataSetting("attention.key_length_swa", "width of a key within the window", spec.head_dim),
        MetadataSetting("attention.value_length_swa", "width of a value within the window", spec.head_dim),
        MetadataSetting("rope.freq_base_swa", "rope base of local layers", theta, 10_000.0),
        MetadataSetting("final_logit_softcapping", "cap of the logits", spec.logit_softcap or 0.0, 0.0),
    ]


def _delta_settings(spec: DecoderSpec) -> list[MetadataSetting]:
    """List the settings of gated delta nets (llama.cpp's models/qwen35.cpp, `load_arch_hparams`)."""
    delta = spec.delta
    if delta is None:
        return []
    return [
        MetadataSetting("ssm.conv_kernel", "width of the convolutions", spec.conv_width),
        MetadataSetting("ssm.state_size", "width of a head of the delta nets", delta.value_dim),
        MetadataSetting("ssm.group_count", "number of key heads of the delta nets", delta.key_heads),
        MetadataSetting("ssm.time_step_rank", "number of value heads of the delta nets", delta.value_heads),
        MetadataSetting("ssm.inner_size", "width of the delta nets", delta.value_heads * delta.value_dim),
    ]


def _expert_settings(spec: DecoderSpec) -> list[MetadataSetting]:
    experts = spec.experts
    if experts is None:
        return []
    size_by_default = None if spec.family in {"gpt_oss", "lfm2_moe", "mellum", "minimax_m2"} else experts.size
    made = [
        MetadataSetting("expert_count", "number of experts", experts.count),
        MetadataSetting("expert_used_count", "number of a token's experts", experts.slots),
        MetadataSetting("expert_feed_forward_length", "width of an expert", experts.size, size_by_default),
        MetadataSetting("expert_weights_scale", "factor of the experts' weights", experts.scale, 1.0),
    ]
    if experts.shared_size and experts.shared == "gated":
        size = MetadataSetting("expert_shared_feed_forward_length", "width of the shared expert", experts.shared_size)
        made.append(size)
    if experts.router == "sigmoid":
        dense = [layer.is_mixture for layer in spec.layers].index(True)
        made.append(MetadataSetting("expert_gating_func", "function of the router", 2.0))  # sigmoid
        made.append(MetadataSetting("leading_dense_block_count", "number of layers without experts", dense, 0.0))
    return made


def _rope_settings(spec: DecoderSpec) -> list[MetadataSetting]:
    rope = spec.rope
    kind = rope.scaling if rope.scaling in {"linear", "yarn"} else "none"
    rotated = int(spec.largest_head * rope.partial)
    made = [
        MetadataSetting("rope.freq_base", "rope base", rope.theta, 10_000.0),
        MetadataSetting("rope.dimension_count", "number of rotated dimensions", rotated, spec.largest_head),
        # llama.cpp applies a factor linearly where the file names no kind of scaling.
        MetadataSetting(
            "rope.scaling.type", "kind of rope scaling", kind, kind if kind in {"none", "linear"} else None
        ),
        MetadataSetting("rope.scaling.factor", "rope scale", rope.factor if kind != "none" else 1.0, 1.0),
    ]
    if rope.scaling in {"yarn", "longrope"} and rope.original_context:
        made.append(MetadataSetting("rope.scaling.original_context_length", "original context", rope.original_context))
    if rope.scaling == "longrope":
        made.append(MetadataSetting("rope.scaling.attn_factor", "rope's attention factor", rope.attention_factor))
    if spec.family in {"gpt_oss", "ministral3"}:
        made += [
            MetadataSetting("rope.scaling.yarn_beta_fast", "rope's upper bound", rope.beta_fast, 32.0),
            MetadataSetting("rope.scaling.yarn_beta_slow", "rope's lower bound", rope.beta_slow, 1.0),
        ]
    if spec.family == "ministral3":
        grown = 0.1 * math.log(rope.factor)
        stretched = (1.0 + grown) / rope.attention_factor - 1.0
        made += [
            MetadataSetting("rope.scaling.yarn_log_multiplier", "rope's attention factor", stretched / grown, 0.0),
            MetadataSetting("attention.temperature_scale", "growth of the queries", rope.query_scale, 0.0),
        ]
    if spec.family == "gemma3_text" and spec.sliding_window:
        local = (spec.local_rope or rope).theta
        made.append(MetadataSetting("rope.freq_base_swa", "rope base of local layers", local, 10_000.0))
    return made


def _same(found: Any, wanted: float | str | tuple[float, ...]) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return bool(found == wanted)
    # A number for each layer and one number for all layers can mean the same.
    values = found if isinstance(found, tuple) else (found,)
    others = wanted if isinstance(wanted, tuple) else (wanted,)
    length = max(len(values), len(others))
    values, others = (part * length if len(part) == 1 else part for part in (values, others))
    return len(values) == len(others) and all(
        math.isclose(float(one), float(other), rel_tol=1e-5) for one, other in zip(values, others, strict=True)
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value) if isinstance(value, str) else f"{value:g}"
