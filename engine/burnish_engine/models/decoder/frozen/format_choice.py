"""Decides what of a run is done in 8 bits, and refuses what its model or GPU does not do. Loads no torch."""

from __future__ import annotations

from collections import Counter

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.decoder.frozen.declared import MX_BLOCK
from burnish_engine.models.families import layer_matrices
from burnish_engine.models.families.matrices import StackName, stack_of
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES, MXFP8_CAPABILITIES

_UNKNOWN_CAPABILITY = 80  # capability that a GPU counts with where NVML does not tell it: without FP8

CARDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "int8": ("A100, RTX 30, RTX 40, H100, RTX 50", CAPABILITIES),
    "fp8": ("RTX 40, H100, RTX 50", FP8_CAPABILITIES),
    "mxfp8": ("RTX 50", MXFP8_CAPABILITIES),
}
"""Cards and their compute capabilities that each of `EIGHT_BITS` is for."""


def capability_of(gpu: GpuFacts | None) -> int | None:
    """Return a GPU's compute capability, such as 89; None for the CPU."""
    if gpu is None:
        return None
    major, minor = gpu.compute_capability or divmod(_UNKNOWN_CAPABILITY, 10)
    return 10 * major + minor


def check_eight_bits(
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
    if recipe.model.quantize == "fp8" and spec.num_experts:
        raise UsageError(
            f'model.quantize = "fp8" is for dense models, and this one is a mixture of {spec.num_experts} experts.',
            'Set model.quantize = "nf4" or "none".',
        )
    if products in EIGHT_BITS and (reason := why_not_eight(products, recipe, spec, precision, capability)):
        if began:
            raise UsageError(
                f"This run multiplies with its frozen weights in {products.upper()}, and that does not work here: "
                f"{reason}.",
                "Resume it on a card that can, or start a new run.",
            )
        raise UsageError(f'train.products = "{products}" does not work here: {reason}.', 'Set train.products = "16".')


def why_not_eight(products: str, recipe: Recipe, spec: DecoderSpec, precision: str, capability: int | None) -> str:
    """Return the reason why products are not computed in 8 bits, completing a sentence; empty where they can be.

    On the CPU they can be, slowly: with the same numbers as on a GPU.

    Args:
        products: format of the operands, one of `EIGHT_BITS`.
        recipe: recipe of the run.
        spec: shape of the base model.
        precision: precision of the base model's computation.
        capability: compute capability of the GPU, such as 89; None for the CPU.
    """
    card, known = CARDS[products]
    if capability is not None and capability not in known:
        listed = ", ".join(f"{one // 10}.{one % 10}" for one in known)
        here = f"{capability // 10}.{capability % 10}"
        return (
            f"the GPU's compute capability is {here}, and Burnish's {products.upper()} products are for {listed} "
            f"({card})"
        )
    if any(layer.blocks for layer in spec.layers):
        return "the weights stay in the blocks of their GGUF, which are decoded to 16 bits"
    if spec.num_experts and products != "fp8":
        return f"the model is a mixture of {spec.num_experts} experts, which are multiplied in 16 bits or in FP8"
    if precision == "fp32":
        return f"the run computes in fp32, and products in {products.upper()} give results in 16 bits"
    if recipe.adapter.method not in ("lora", "rslora"):
        return f'adapter.method = "{recipe.adapter.method}" needs the weights in 16 bits'
    return _why_not_in_blocks(spec) if products == "mxfp8" else ""


def _why_not_in_blocks(spec: DecoderSpec) -> str:
    """Return the reason why a dense model's weights are not kept in MXFP8, completing a sentence."""
    for layer in spec.layers:
        rows = Counter[StackName]()
        linear = [matrix for matrix in layer_matrices(spec, layer) if matrix.form == "linear"]
        for matrix in linear:
            rows[stack_of(matrix)] += matrix.rows
        odd = [size for size in (*rows.values(), *(matrix.columns for matrix in linear)) if size % MX_BLOCK]
        if odd:
            return f"the model has a matrix of {odd[0]:,} rows or columns, and blocks have {MX_BLOCK} of each"
    return ""


def eight_bit_use(recipe: Recipe, products: str, *, nf4: bool) -> EightBitUse:
    """Return what a run stores and multiplies in 8 bits.

    Where products read codes and the weights are not in NF4, nothing but the codes is kept: nothing else would be read.

    Args:
        recipe: recipe of the run, which `check_eight_bits` did not refuse.
        products: what products are computed in, as train.products says; "auto" counts as 16 until it is decided.
        nf4: whether the frozen weights are kept in NF4, or in the blocks of their GGUF.
    """
    multiplied = products if products in EIGHT_BITS else ""
    asked = "fp8" if recipe.model.quantize == "fp8" else ""
    return EightBitUse(stored="" if nf4 else multiplied or asked, products=multiplied)
