"""What a run's result can be exported as, decided from model and adapter before training. Loads no torch.

`export.preflight` refuses by the same decision, so that what a plan promises is what an export does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from burnish_engine.advise.gguf_rules import Config, Refusal, gguf_refusal
from burnish_engine.contract.exports import ExportChoice, ExportKind
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe_train import AdapterSection
from burnish_engine.models.spec import decoder_spec

_EXPERT_WORDS = ("expert", "gate_up_proj", "down_proj", "auto")
"""Parts of target names that mean the experts of a mixture, which transformers keeps in stacks."""


def exports_of(
    config: Config,
    spec: DecoderSpec | None,
    adapter: AdapterSection,
    *,
    trained: Path | None = None,
    name: str = "the model",
) -> list[ExportChoice]:
    """Each kind of export, and whether it works.

    Args:
        config: The base model's config.json; at least its model_type.
        spec: The base model's shape; None where it is not known in detail.
        adapter: What is trained.
        trained: The finished adapter's folder, which is read instead of guessed from the recipe.
        name: What to call the model.
    """
    refused = {kind: refusal(kind, config, spec, adapter, trained=trained, name=name) for kind in get_args(ExportKind)}
    return [ExportChoice(kind=kind, works=why is None, reason=why.what if why else "") for kind, why in refused.items()]


def planned_exports(config: Config | None, spec: DecoderSpec, adapter: AdapterSection) -> list[ExportChoice]:
    """The exports of a run that is planned.

    Args:
        config: The base model's config.json; None for one of the catalog, which is what its shape says.
        spec: Its shape, which may be a rough one where there is a config.
        adapter: What is trained.
    """
    if config is None:
        return exports_of({"model_type": spec.family}, spec, adapter)
    return exports_of(config, decoder_spec(dict(config)), adapter)


def refusal(
    kind: ExportKind,
    config: Config,
    spec: DecoderSpec | None,
    adapter: AdapterSection,
    *,
    trained: Path | None = None,
    name: str = "the model",
) -> Refusal | None:
    """Why one kind of export does not work; None where nothing stands in its way.

    Args:
        kind: The kind.
        config: See `exports_of`.
        spec: See `exports_of`.
        adapter: See `exports_of`.
        trained: See `exports_of`.
        name: See `exports_of`.
    """
    whole = adapter.method == "full"
    if whole and kind in {"adapter", "lora-gguf"}:
        return Refusal("Every weight is trained, so there is no adapter.", "Export as safetensors or GGUF instead.")
    if kind == "adapter":
        return None
    unmerged = _quantized(config, name) or (None if whole else _on_experts(spec, adapter, trained))
    if kind == "safetensors":
        return unmerged
    return gguf_refusal(str(config.get("model_type")), spec, config, name) or unmerged


def finished_refusal(
    kind: ExportKind, config: Config, spec: DecoderSpec | None, trained: Path | None, name: str
) -> Refusal | None:
    """Why one kind of export of a finished model does not work; None where nothing stands in its way.

    Args:
        kind: The kind.
        config: The model's config.json.
        spec: Its shape; None where it is not known in detail.
        trained: The adapter's folder; None where the model is exported as it is.
        name: What to call the model.
    """
    adapter = AdapterSection() if trained is not None else AdapterSection(method="full")
    return refusal(kind, config, spec, adapter, trained=trained, name=name)


def fused_experts(spec: DecoderSpec | None, adapter: AdapterSection) -> bool:
    """Whether the recipe adapts experts that a model fuses into stacks, which PEFT does as `target_parameters`."""
    if spec is None or not spec.num_experts or adapter.method == "full":
        return False
    return any(word in target for target in adapter.targets for word in _EXPERT_WORDS)


def _quantized(config: Config, name: str) -> Refusal | None:
    stored = config.get("quantization_config")
    if not stored:
        return None
    method = stored.get("quant_method", "unknown method") if isinstance(stored, Mapping) else "unknown method"
    return Refusal(
        f"The base model {name} is quantized ({method}); an adapter merged into rounded weights would not be the "
        "trained model.",
        "Export the adapter (--to adapter), or train on the same model in 16 bit.",
    )


def _on_experts(spec: DecoderSpec | None, adapter: AdapterSection, trained: Path | None) -> Refusal | None:
    saved = _saved_config(trained)
    if not (fused_experts(spec, adapter) if saved is None else saved.get("target_parameters")):
        return None
    return Refusal(
        "The adapter changes experts that the model keeps in one stack, which this version does not merge.",
        "Export the adapter (--to adapter); PEFT adds it to the base.",
    )


def _saved_config(trained: Path | None) -> dict[str, Any] | None:
    """adapter_config.json of a finished adapter; None where there is none to read."""
    if trained is None:
        return None
    try:
        found = json.loads((trained / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
