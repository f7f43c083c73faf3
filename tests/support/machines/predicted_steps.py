"""Predicted times of the fast engine's steps, on an H100 unless a test names another card."""

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.advise.predict.fast_speed import fast_seconds
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.machine import GpuFacts, PcieFacts
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, parse_save_levels
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection

SPAN = 660.0  # of a token of documents with a median of 181 tokens, spread as those of the bench
H100 = GpuFacts(
    index=0, name="NVIDIA H100 80GB HBM3", pcie=PcieFacts(to_gpu_gb_s=54.0, from_gpu_gb_s=54.0)
)  # fmt: skip


def seconds(
    name,
    tokens,
    layers,
    *,
    gpu=H100,
    nf4=False,
    eight_bits=NO_EIGHT_BITS,
    precision="bf16",
    cuda=True,
    cores=1,
    span=SPAN,
    first=0,
    filled=0,
    adapter=None,
    **pieces,
):
    filled = filled or tokens
    spec, one = shape(name, first), MicroBatchSize(filled, filled, bucket=tokens, longest=2048, span=span)
    plan = {
        "layers": parse_save_levels(layers, spec.num_layers),
        "head_rows": head_chunk_tokens(tokens, cuda=cuda),
    } | pieces
    recipe = Recipe(adapter=adapter or AdapterSection())
    run = FastRun(
        recipe, spec, one, cuda=cuda, precision=precision, nf4=nf4, eight_bits=eight_bits, gpu=gpu, cpu_cores=cores
    )
    return fast_seconds(run, one, MemoryPlan(**plan))
