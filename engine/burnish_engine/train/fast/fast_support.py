"""Models and adapters that the fast engine trains, and reasons why it does not train others."""

from __future__ import annotations

import torch

from burnish_engine.contract.facts.coverage import Coverage, count_coverage
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import Recipe, why_plain
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.lora_adapter import AdapterPlan
from burnish_engine.models.families import layer_matrices, why_not_fast
from burnish_engine.models.families.adapter_targets import why_plain_adapter, why_plain_experts
from burnish_engine.models.generation.load_fast import device_problem


def adapter_coverage(spec: DecoderSpec, adapters: AdapterPlan) -> Coverage:
    """Count which matrices of the decoder's layers the adapter reaches."""
    reached = {adapted.path for adapted in adapters.parts}
    return count_coverage(
        (matrix, f"model.layers.{number}.{matrix.name}" in reached)
        for number, layer in enumerate(spec.layers)
        for matrix in layer_matrices(spec, layer)
    )


def why_not(source: ModelSource, recipe: Recipe, device: torch.device) -> str:
    """Return why the fast engine cannot train this run, as the first half of a sentence; empty where it can."""
    reason = why_not_fast(source.config, source.spec, nf4=True)
    if reason:
        return f"The model {reason}, which the fast engine does not do"
    beyond = why_plain_experts(source.spec, recipe) or why_plain_adapter(recipe.adapter)
    return why_plain(recipe) or beyond or device_problem(device)
