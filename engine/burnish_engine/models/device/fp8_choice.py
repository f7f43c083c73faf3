"""Decides what of a run is done in 8 bits, and refuses what its model or GPU does not do. Loads no torch."""

from __future__ import annotations

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.fp8_use import Codes, Fp8Use
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES

_UNKNOWN_CAPABILITY = 80  # capability that a GPU counts with where NVML does not tell it: without FP8
_CARDS: dict[Codes, tuple[tuple[int, ...], str]] = {
    "fp8": (FP8_CAPABILITIES, "RTX 40, H100, RTX 50"),
    "int8": (CAPABILITIES, "A100, RTX 30, RTX 40, H100, RTX 50"),
}


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
    if products not in ("fp8", "int8"):
        return
    if reason := why_not_fp8(recipe, spec, precision, capability, products):
        if began:
            raise UsageError(
                f"This run multiplies with its frozen weights in {products.upper()}, and that does not work here: "
                f"{reason}.",
                "Resume it on a card that can, or start a new run.",
            )
        raise UsageError(f'train.products = "{products}" does not work here: {reason}.', 'Set train.products = "16".')


def why_not_fp8(recipe: Recipe, spec: DecoderSpec, precision: str, capability: int | None, codes: Codes = "fp8") -> str:
    """Return the reason why products are not computed in 8 bits, completing a sentence; empty where they can be.

    On the CPU they can be, slowly: with the same numbers as on a GPU.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        precision: precision of the base model's computation.
        capability: compute capability of the GPU, such as 89; None for the CPU.
        codes: number format of the operands.
    """
    capabilities, cards = _CARDS[codes]
    if capability is not None and capability not in capabilities:
        known = ", ".join(f"{one // 10}.{one % 10}" for one in capabilities)
        here = f"{capability // 10}.{capability % 10}"
        return (
            f"the GPU's compute capability is {here}, and Burnish's {codes.upper()} kernels are for {known} ({cards})"
        )
    if spec.num_experts:
        return f"the model is a mixture of {spec.num_experts} experts, which are multiplied in 16 bits"
    if precision == "fp32":
        return f"the run computes in fp32, and products in {codes.upper()} give results in 16 bits"
    if recipe.adapter.method not in ("lora", "rslora"):
        return f'adapter.method = "{recipe.adapter.method}" needs the weights in 16 bits'
    return ""


def fp8_use(recipe: Recipe, products: str, *, nf4: bool) -> Fp8Use:
    """Return what a run stores and multiplies in 8 bits.

    Where products read codes and the weights are not in NF4, nothing but the codes is kept: nothing else would be read.

    Args:
        recipe: recipe of the run, which `check_fp8` did not refuse.
        products: what products are computed in, "16", "fp8" or "int8"; "auto" counts as 16 until it is decided.
        nf4: whether the frozen weights are kept in NF4.
    """
    multiplied = products in ("fp8", "int8")
    stored = not nf4 and (multiplied or recipe.model.quantize == "fp8")
    return Fp8Use(stored, multiplied, "int8" if products == "int8" else "fp8")
