"""Refuses a kind of export that does not work for a model and its adapter: the one place where exports are refused."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.advise.plan.exports import refusal
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.exports import ExportKind
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import ModelSource


def check_kind(kind: ExportKind, source: ModelSource, adapter: Path | None) -> None:
    """Refuse a kind of export that does not work for the model, by the same rule as before training.

    Args:
        kind: kind of export.
        source: base model, or the trained one.
        adapter: folder of the PEFT adapter; None: there is none.

    Raises:
        UsageError: This kind of export does not work for the model.
    """
    spec = source.spec
    if spec is None and adapter is not None:
        from burnish_engine.models.transformers_path.model_shape import measured_spec  # loads torch

        spec = measured_spec(source.config)
    section = AdapterSection() if adapter is not None else AdapterSection(method="full")
    if why := refusal(kind, source.config, spec, section, trained=adapter, name=source.name):
        raise UsageError(*why)
