"""Decides what of a run is done in FP8, and refuses what its model or GPU does not do. Loads no torch."""

from __future__ import annotations

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.fp8_use import Fp8Use
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_kernels.registry import FP8_CAPABILITIES

_UNKNOWN_CAPABILITY = 80  # capability that a GPU counts with where NVML does not tell it: without FP8


def capability_of(gpu: GpuFacts | None) -> int | None:
    """Return a GPU's compute capability, such as 89; None for the CPU."""
    if gpu is None:
        return None
    major, minor = gpu.compute_capability or divmod(_UNKNOWN_CAPABILITY, 10)
    return 10 * major + minor


def check_fp8(
    recipe: Recipe, spec: DecoderSpec, precision: str, capability: int | None, *, began: bool = False
) -> None:
    """Refuse storage or products in 8 bits that the fast engine does not do for a model on a device.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        precision: precision of the base model's computation.
        capability: compute capability of the GPU, such as 89; None for the CPU.
        began: whether the run has begun with these products, perhaps on another card.

    Raises:
        UsageError: The recipe asks for it.
    """
    products = recipe.train.products
    if products == "mxfp8":
        raise UsageError(
            'train.products = "mxfp8" is for RTX 50 cards (compute capability 12.x), and this version does not '
            "train with it yet.",
            'Set train.products = "fp8", "auto" or "16".',
        )
    if recipe.model.quantize == "fp8" and spec.num_experts:
        raise UsageError(
            f'model.quantize = "fp8" is for dense models, and this one is a mixture of {spec.num_experts} experts.',
            'Set model.quantize = "nf4" or "none".',
        )
    if products == "fp8" and (reason := why_not_fp8(recipe, spec, precision, capability)):
        if began:
            raise UsageError(
                f"This run multiplies with its frozen weights in FP8, and that does not work here: {reason}.",
                "Resume it on a card that can, or start a new run.",
            )
        raise UsageError(f'train.products = "fp8" does not work here: {reason}.', 'Set train.products = "16".')


def why_not_fp8(recipe: Recipe, spec: DecoderSpec, precision: str, capability: int | None) -> str:
    """Return the reason why products are not computed in FP8, completing a sentence; empty where they can be.

    Arguments as for `check_fp8`. On the CPU they can be, slowly: with the same numbers as on a GPU.
    """
    if capability is not None and capability not in FP8_CAPABILITIES:
        known = ", ".join(f"{one // 10}.{one % 10}" for one in FP8_CAPABILITIES)
        here = f"{capability // 10}.{capability % 10}"
        return (
            f"the GPU's compute capability is {here}, and Burnish's FP8 kernels are for {known} (RTX 40, H100, RTX 50)"
        )
    if spec.num_experts:
        return f"the model is a mixture of {spec.num_experts} experts, which are multiplied in 16 bits"
    if precision == "fp32":
        return "the run computes in fp32, and products in FP8 give results in 16 bits"
    if recipe.adapter.method not in ("lora", "rslora"):
        return f'adapter.method = "{recipe.adapter.method}" needs the weights in 16 bits'
    return ""


def fp8_use(recipe: Recipe, products: str, *, nf4: bool) -> Fp8Use:
    """Return what a run stores and multiplies in FP8.

    Where products read codes and the weights are not in NF4, nothing but the codes is kept: nothing else would be read.

    Args:
        recipe: recipe of the run, which `check_fp8` did not refuse.
        products: what products are computed in, "16" or "fp8"; "auto" counts as 16 until it is decided.
        nf4: whether the frozen weights are kept in NF4.
    """
    multiplied = products == "fp8"
    return Fp8Use(stored=not nf4 and (multiplied or recipe.model.quantize == "fp8"), products=multiplied)
