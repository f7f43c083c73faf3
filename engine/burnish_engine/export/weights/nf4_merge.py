"""Reproduce the NF4-rounded weights of a 4-bit run (QLoRA).

The adapter of such a run can be added to the 16-bit base or to the rounded weights (Dettmers et al. 2023); the two
results differ by the rounding error of NF4.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from burnish_engine.models.checkpoint.meta_model import meta_model
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.families import family
from burnish_engine.models.saved_adapters.saved_adapter import PREFIX
from burnish_engine.models.transformers_path.model_shape import quantized_modules
from burnish_kernels.nf4 import op as nf4


def rounded_names(source: ModelSource, *, experts: bool = False) -> frozenset[str]:
    """Names of base tensors that a 4-bit run keeps in NF4: every linear layer but the head.

    Args:
        source: base model.
        experts: whether stacks of experts count too, as on the fast engine; not those that are published in MXFP4.
    """
    known = family(str(source.config.get("model_type"))) if source.spec is not None else None
    if known is None or source.spec is None:  # trained by transformers
        return frozenset(f"{name}.weight" for name in quantized_modules(meta_model(source.config)))
    stacks: list[str] = []
    if experts and source.spec.experts is not None and not source.spec.has_mxfp4_experts:
        stacks = [stack.path for stack in known.all_expert_stacks(source.spec)]
    return frozenset([*(f"{module.path}.weight" for module in known.modules(source.spec)), *stacks])


def round_trip(weight: torch.Tensor) -> torch.Tensor:
    """Round a weight [out, in] to NF4 (blocks of 64, double quantization) and back to fp32."""
    return nf4.dequantize(nf4.quantize(weight.float()), dtype=torch.float32)


def round_model(model: Any, names: Collection[str]) -> None:
    """Round a loaded model's weights in place.

    Args:
        model: transformers model, with or without PEFT's adapter around its linear layers.
        names: names of base tensors.
    """
    with torch.no_grad():
        for path, value in model.named_parameters():
            if path.removeprefix(PREFIX).replace(".base_layer", "") not in names:
                continue
            if value.ndim == 2:
                value.copy_(round_trip(value))
                continue
            transposed = model.get_submodule(path.rpartition(".")[0]).is_transposed
            for matrix in value:  # of one expert
                matrix.copy_(round_trip(matrix.T).T if transposed else round_trip(matrix))
