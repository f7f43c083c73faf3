"""The predicted memory of runs on the fast engine, part by part."""

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.predict.fast_parts import memory_parts
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import MemoryPlan

EIGHT_BITS = {
    "FP8 stored": (False, EightBitUse("fp8", "")),
    "FP8": (False, EightBitUse("fp8", "fp8")),
    "NF4": (True, EightBitUse("", "fp8")),
    "INT8": (False, EightBitUse("int8", "int8")),
    "MXFP8": (False, EightBitUse("mxfp8", "mxfp8")),
    "NF4 to MXFP8": (True, EightBitUse("", "mxfp8")),
}
"""Formats of frozen weights by name: whether they are in NF4, and what of them is in 8 bits."""
NO_TENSORS = {"graph pools", "fragmentation", "CUDA context"}
"""Parts of a GPU's peak that are no tensors."""


def run(recipe, spec, largest, **options):
    """A run on a GPU in bf16, unless the options say otherwise."""
    options = {"cuda": True, "precision": "bf16", "nf4": False} | options
    return FastRun(recipe, spec, largest, **options)


def parts(recipe, spec, largest, plan=None, **options):
    """Bytes of each part of the run's peak, by name; without a plan, products are kept in all layers."""
    planned = run(recipe, spec, largest, **options)
    if plan is None:
        head = head_chunk_tokens(largest.supervised_tokens, cuda=planned.cuda)
        plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=head)
    return {part.name: part.bytes for part in memory_parts(planned, plan)}
