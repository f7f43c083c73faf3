"""Read the config.json of a model from its GGUF, by the table of families. Loads no torch.

What was read is proven by the same table: the settings that an export would write of it must be the file's, and the
file may have no others.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader
from burnish_engine.models.checkpoint.gguf_file.rope_factors import llama3_rope
from burnish_engine.models.checkpoint.gguf_file.tensor_names import places
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import FAMILIES, GGUF_METHOD, Family, layer_matrices
from burnish_engine.models.families.rules.gguf import GgufRules, Settings
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, row_bytes

PLAIN = {"F32": 4, "F16": 2, "BF16": 2}
"""Types that are no blocks, with their bytes."""
_ROPE_FACTORS = "rope_freqs.weight"
_SAME_FOR_ALL = {"vocab_size", "rope.dimension_count", "expert_count", "expert_used_count", "nextn_predict_layers"}
"""Keys that a file may have as 0, or that say what tensors say too."""
_READABLE = {
    family.gguf.architecture: family
    for family in reversed(FAMILIES.values())
    if family.gguf is not None and family.gguf.config is not None
}
"""Family of each architecture that models are read of: the first that has it."""


def read_model_config(path: Path, header: GgufHeader) -> dict[str, Any]:
    """Return the config.json of a file's model.

    `quantization_config` names the file's method, and lists for each layer the bytes of its linear weights in the
    family's order; it lists nothing where none is in blocks.

    Args:
        path: the file, for messages and for divisors of its rope.
        header: header of the file.

    Raises:
        UsageError: Models of this architecture, with these settings or types, are not trained from a GGUF. The message
            says what to fetch instead.
        SetupError: The file is damaged, or lacks tensors.
    """
    _check_whole(path, header)
    family = _READABLE.get(header.architecture)
    if family is None or family.gguf is None:
        raise _refusal(
            path, header, f"is of the architecture {header.architecture!r}, and of {', '.join(sorted(_READABLE))} alone"
        )
    rules, prefix = family.gguf, f"{header.architecture}."
    settings = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    _check_types(path, header)
    try:
        config = _usual(path, header, settings) | _rope(path, header, settings) | _own(rules, settings)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise SetupError(f"{path} lacks or garbles a setting ({error}).", "Download the file again.") from error
    config["model_type"] = family.model_type
    spec = decoder_spec(config)
    why = "settings that Burnish does not know" if spec is None else _why_other(rules, spec, config, settings)
    if spec is None or why:
        raise _refusal(path, header, f"has {why}, and of models without")
    config["quantization_config"] = {"quant_method": GGUF_METHOD, "layers": _layers(path, header, family, spec)}
    return config


def _refusal(path: Path, header: GgufHeader, what: str) -> UsageError:
    base = header.metadata.get("general.base_model.0.repo_url") or header.metadata.get("general.base_model.0.name")
    named = f" of {base}" if isinstance(base, str) and base else " of the model it was made from"
    return UsageError(
        f"{path.name} {what} a GGUF can be trained from.",
        f"Fetch the safetensors{named} (burnish models fetch OWNER/NAME) and train from these.",
    )


def _check_whole(path: Path, header: GgufHeader) -> None:
    parts, kind = header.metadata.get("split.count", 1), header.metadata.get("general.type", "model")
    if parts != 1:
        raise UsageError(
            f"{path.name} is one of {parts} parts of a model.",
            "Put them together with llama.cpp (llama-gguf-split --merge), or get the model in one file.",
        )
    if kind != "model":
        raise UsageError(f"{path.name} holds no model but the kind {kind!r}.", "Give the model's own .gguf file.")


def _check_types(path: Path, header: GgufHeader) -> None:
    odd = sorted({one.type for one in header.tensors} - BLOCK_TYPES.keys() - PLAIN.keys())
    if odd:
        raise UsageError(
            f"{path.name} has weights of the type {', '.join(odd)}, which cannot be trained from.",
            f"Get the model as a GGUF of the types {', '.join(BLOCK_TYPES)}, F16 or BF16, such as Q4_K_M or Q8_0.",
        )


def _usual(path: Path, header: GgufHeader, settings: Settings) -> dict[str, Any]:
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    if "token_embd.weight" not in shapes:
        raise SetupError(f"{path} has no embedding (token_embd.weight).", "Download the file again.")
    heads = int(settings["attention.head_count"])
    hidden = int(settings["embedding_length"])
    tokens = header.metadata
    ends = [tokens.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return {
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": hidden,
        "intermediate_size": int(settings["feed_forward_length"]),
        "num_hidden_layers": int(settings["block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(settings.get("attention.head_count_kv", heads)),
        "head_dim": int(settings.get("attention.key_length", hidden // heads)),
        "max_position_embeddings": int(settings["context_length"]),
        "rms_norm_eps": _short(settings["attention.layer_norm_rms_epsilon"]),
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "bos_token_id": tokens.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": [end for end in ends if isinstance(end, int)] or None,
        "pad_token_id": tokens.get("tokenizer.ggml.padding_token_id"),
    }


def _own(rules: GgufRules, settings: Settings) -> dict[str, Any]:
    return rules.config(settings) if rules.config else {}


def _short(value: float) -> float:
    """Return the shortest decimal number that is the same in fp32, as it stood in config.json."""
    for digits in range(1, 9):
        found = float(f"{value:.{digits}g}")
        if struct.pack("<f", found) == struct.pack("<f", value):
            return found
    return value


def _rope(path: Path, header: GgufHeader, settings: Settings) -> dict[str, Any]:
    theta = _short(float(settings.get("rope.freq_base", 10_000.0)))
    kind, factor = settings.get("rope.scaling.type", "none"), float(settings.get("rope.scaling.factor", 1.0))
    found: dict[str, Any] = {"rope_theta": theta}
    if kind == "linear":
        found["rope_scaling"] = {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    elif kind == "yarn":
        original = int(settings["rope.scaling.original_context_length"])
        found["rope_scaling"] = {
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": factor,
            "original_max_position_embeddings": original,
        }
    elif kind != "none":
        raise _refusal(path, header, f"has {kind} rope, and of models without")
    if any(tensor.name == _ROPE_FACTORS for tensor in header.tensors):
        found["rope_scaling"] = _llama3(path, header, theta)
    return found


def _llama3(path: Path, header: GgufHeader, theta: float) -> dict[str, Any]:
    tensor = next(one for one in header.tensors if one.name == _ROPE_FACTORS)
    with path.open("rb") as file:
        file.seek(header.data_start + header.offsets[_ROPE_FACTORS])
        data = file.read(4 * tensor.row)
    rope = llama3_rope(struct.unpack(f"<{tensor.row}f", data), theta, 2 * tensor.row)
    if rope is None:
        raise _refusal(path, header, "divides the frequencies of its rope by numbers of its own, and of models without")
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_context,
    }


def _why_other(rules: GgufRules, spec: DecoderSpec, config: Mapping[str, Any], settings: Settings) -> str:
    """Name what of the file's settings a model of this config would not have; empty where they are the same."""
    odd = next((what for what, holds in rules.oddities(spec, config) if holds), "")
    if odd:
        return f"a model that {odd}"
    written = rules.all_metadata(spec, config)
    for key, value in settings.items():
        if key in _SAME_FOR_ALL and (not value or key in {"vocab_size", "rope.dimension_count"}):
            continue
        if key not in written or not _equal(written[key], value):
            return f"the setting {key} = {str(value)[:60]}"
    return ""


def _equal(written: Any, value: Any) -> bool:
    if isinstance(written, list):
        return isinstance(value, tuple) and written == list(value)
    if isinstance(written, float) and isinstance(value, float | int):
        return math.isclose(written, value, rel_tol=1e-6)
    return bool(written == value)


def _layers(path: Path, header: GgufHeader, family: Family, spec: DecoderSpec) -> list[list[int]]:
    """List the bytes of each layer's linear weights; nothing where none is in blocks."""
    assert family.gguf is not None
    types, named, found = {one.name: one.type for one in header.tensors}, places(family.gguf, spec.num_layers), []
    packed = False
    for index, layer in enumerate(spec.layers):
        own = []
        for matrix in layer_matrices(spec, layer):
            names = named(f"{family.stored_path(f'model.layers.{index}.{matrix.name}')}.weight")
            if len(names) != 1 or names[0] not in types:
                raise SetupError(f"{path} lacks the weight {matrix.name} of layer {index}.", "Download the file again.")
            kind = types[names[0]]
            if kind in PLAIN:
                own.append(matrix.rows * matrix.columns * min(PLAIN[kind], 2))
                continue
            packed = True
            try:
                own.append(matrix.rows * row_bytes(kind, matrix.columns))
            except ValueError as error:
                raise SetupError(f"{path} is damaged: {names[0]}: {error}.", "Download the file again.") from error
        found.append(own)
    return found if packed else []
