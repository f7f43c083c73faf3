"""Decides before training, from model and adapter, which exports of a run's result will work. Loads no torch.

`export.preflight` refuses by the same decision, so that what a plan promises is what an export does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from burnish_engine.advise.facts.gguf_rules import Config, Refusal, gguf_refusal, rounded_rope_angle
from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.exports import ExportChoice, ExportKind, export_text
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.files import read_plain
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import layer_matrices, stores_gguf
from burnish_engine.models.families.adapter_targets import StartedSection, has_name, is_target
from burnish_engine.models.saved_adapters.adapter_files import why_not_lora
from burnish_engine.models.saved_adapters.peft_form import by_modules

_TRANSPOSED = frozenset({"gpt2", "openai-gpt"})
"""Model types whose linear layers are transformers' Conv1D, weights [in, out]."""
_COMPARED_TOKENS = 1024  # most tokens of a row that are compared; see `export.verify.reference`
_OPPOSITE = math.pi  # angle, radians, from which on a pair of a head points to where it should not


def exports_of(
    config: Config,
    spec: DecoderSpec | None,
    adapter: AdapterSection,
    *,
    trained: Path | None = None,
    name: str = "",
) -> list[ExportChoice]:
    """List each kind of export and whether it works.

    Args:
        config: config.json of the base model; at least its model_type.
        spec: shape of the base model, read or counted; None where neither could be done.
        adapter: the recipe's adapter section.
        trained: folder of the finished adapter, which then decides instead of the recipe.
        name: the model's name in the reasons; empty where it is not told.
    """
    refused = {kind: refusal(kind, config, spec, adapter, trained=trained, name=name) for kind in get_args(ExportKind)}
    return [ExportChoice(kind=kind, works=why is None, reason=why.what if why else "") for kind, why in refused.items()]


def planned_exports(config: Config | None, spec: DecoderSpec, adapter: AdapterSection) -> list[ExportChoice]:
    """List the exports of a planned run and whether they work.

    Args:
        config: config.json of the base model; None for a model of the catalog, which its shape describes in full.
        spec: shape of the base model; with a config it may be a rough one, which then does not count.
        adapter: the recipe's adapter section.
    """
    started = Path(adapter.folder) if isinstance(adapter, StartedSection) else None
    if config is None:
        return exports_of({"model_type": spec.family}, spec, adapter, trained=started)
    counted = spec if spec.weights else None
    return exports_of(config, decoder_spec(dict(config)) or counted, adapter, trained=started)


def export_notes(exports: Sequence[ExportChoice], spec: DecoderSpec, longest: int) -> list[str]:
    """Say which exports do not work, and whether the proof of a GGUF file will refuse it.

    Args:
        exports: decision for each kind of export; empty where it is not known.
        spec: shape of the base model.
        longest: length of the longest row, tokens.
    """
    return [note for note in (export_text(exports), _proof_note(exports, spec, longest)) if note]


def refusal(
    kind: ExportKind,
    config: Config,
    spec: DecoderSpec | None,
    adapter: AdapterSection,
    *,
    trained: Path | None = None,
    name: str = "",
) -> Refusal | None:
    """Find out why one kind of export does not work; None where it works.

    Args:
        kind: kind of export.
        config: config.json of the base model; at least its model_type.
        spec: shape of the base model, read or counted; None where neither could be done.
        adapter: the recipe's adapter section.
        trained: folder of the finished adapter, which then decides instead of the recipe.
        name: the model's name in the reasons; empty where it is not told.
    """
    whole = adapter.method == "full"
    if whole and kind in {"adapter", "lora-gguf"}:
        return Refusal("Every weight is trained, so there is no adapter.", "Export as safetensors or GGUF instead.")
    if kind == "adapter":
        return None
    other = _quantized(kind, config, spec, name)
    if not whole:
        other = (
            other
            or _on_kind(kind, trained)
            or _on_experts(kind, spec, adapter, trained)
            or _on_transposed(config)
            or _on_parts(spec, adapter, trained)
        )
    if kind == "safetensors":
        return other
    shape = gguf_refusal(str(config.get("model_type")), spec, config, name or "the model")
    return shape._replace(remedy=other.remedy) if shape and other else shape or other


def _proof_note(exports: Sequence[ExportChoice], spec: DecoderSpec, longest: int) -> str:
    tokens = min(longest, _COMPARED_TOKENS, spec.max_context)
    angle = tokens * rounded_rope_angle(spec)
    if angle < _OPPOSITE or not any(one.works for one in exports if one.kind == "gguf"):
        return ""
    return (
        "GGUF files of this model will be refused by their proof: its yarn rope has bounds that are not rounded "
        f"(truncate: false) over an original context of {spec.rope.original_context:,} tokens. llama.cpp rounds them, "
        f"which turns parts of each head by up to {angle:.0f} radians within {tokens:,} tokens. Export as safetensors "
        "or as an adapter instead."
    )


def _quantized(kind: ExportKind, config: Config, spec: DecoderSpec | None, name: str) -> Refusal | None:
    stored = config.get("quantization_config")
    in_mxfp4 = spec is not None and spec.has_mxfp4_experts  # as gpt-oss is published; it is trained on these values
    if not stored or in_mxfp4 or stores_gguf(config):  # a GGUF's decoded values are what was trained on
        return None
    method = stored.get("quant_method", "unknown method") if isinstance(stored, Mapping) else "unknown method"
    why = (
        "llama.cpp would add the adapter to a base of other weights, which would not be the trained model"
        if kind == "lora-gguf"
        else "an adapter merged into rounded weights would not be the trained model"
    )
    return Refusal(
        f"{f'The base model {name}' if name else 'The base model'} is quantized ({method}); {why}.",
        "Export the adapter (--to adapter), or train on the same model in 16 bit.",
    )


def _on_kind(kind: ExportKind, trained: Path | None) -> Refusal | None:
    """Refuse adapters that change more than single weights, or another base."""
    why = why_not_lora(_saved_config(trained) or {})
    if not why:
        return None
    exactly = "written as an adapter for llama.cpp" if kind == "lora-gguf" else "merged exactly"
    return Refusal(
        f"The adapter {why}, which cannot be {exactly}.",
        "Merge it with the program that made it, or export the adapter itself.",
    )


def _on_experts(
    kind: ExportKind, spec: DecoderSpec | None, adapter: AdapterSection, trained: Path | None
) -> Refusal | None:
    """Refuse adapters on stacks of experts of models whose files are not known to hold them in a certain way."""
    saved = _saved_config(trained)
    if not (_adapts_stacks(spec, adapter) if saved is None else _stacks_of(spec, saved)):
        return None
    if spec is not None and spec.experts is not None:
        return None
    missing = "write as an adapter for llama.cpp" if kind == "lora-gguf" else "merge"
    return Refusal(
        f"The adapter changes experts that the model keeps in one stack, which this version does not {missing}.",
        "Export the adapter (--to adapter); PEFT adds it to the base.",
    )


def _on_transposed(config: Config) -> Refusal | None:
    if config.get("model_type") not in _TRANSPOSED:
        return None
    return Refusal(
        "The linear layers of this family are stored transposed, which this version does not merge.",
        "Export the adapter (--to adapter); PEFT adds it to the base.",
    )


def _on_parts(spec: DecoderSpec | None, adapter: AdapterSection, trained: Path | None) -> Refusal | None:
    """Refuse adapters on matrices that files do not hold as tensors of their own, such as one gate_up for two."""
    if spec is None:
        return None
    saved = (_saved_config(trained) or {}).get("target_modules")
    changed = {
        matrix.name
        for matrix in chain(spec.outside, *(layer.matrices for layer in spec.layers))
        if not matrix.stored and matrix.form == "linear" and _is_changed(matrix, adapter, saved)
    }
    if not changed:
        return None
    return Refusal(
        f"The adapter changes {min(changed)}, which the model's files hold only within other tensors, and this version "
        "does not merge into these.",
        "Export the adapter (--to adapter); PEFT adds it to the base.",
    )


def _is_changed(matrix: Matrix, adapter: AdapterSection, saved: Any) -> bool:
    """Whether a matrix has an adapter: by the finished adapter's list of modules, or else by the recipe."""
    if isinstance(saved, list):
        return any(has_name(matrix.name, name) or has_name(name, matrix.name) for name in saved)
    return is_target(matrix, adapter.targets)


def _adapts_stacks(spec: DecoderSpec | None, adapter: AdapterSection) -> bool:
    """Whether the recipe adapts experts that the model keeps in stacks, which PEFT does as `target_parameters`."""
    return spec is not None and any(
        matrix.form == "stacked" and is_target(matrix, adapter.targets)
        for layer in spec.layers
        for matrix in layer_matrices(spec, layer)
    )


def _stacks_of(spec: DecoderSpec | None, saved: Config) -> list[str]:
    """List the stacks that a finished adapter changes: parameters that are no linear layer's weight."""
    names = saved.get("target_parameters")
    matrices = [one for layer in spec.layers for one in layer_matrices(spec, layer)] if spec else []
    weights = [f"{one.name}.weight" for one in matrices if one.form != "stacked"]
    plain = {one for one in map(str, names or ()) if any(has_name(weight, one) for weight in weights)}
    return [one for one in map(str, names or ()) if one not in plain]


def _saved_config(trained: Path | None) -> dict[str, Any] | None:
    """Read adapter_config.json of a finished adapter; None where there is none."""
    if trained is None:
        return None
    try:
        found = json.loads(read_plain(trained / "adapter_config.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return by_modules(found) if isinstance(found, dict) else None
