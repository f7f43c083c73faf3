"""Predictions of a timed step, from the same facts that `burnish plan` reads."""

from __future__ import annotations

import torch

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import BUCKET_MULTIPLE, MicroBatchSize
from burnish_engine.advise.predict.fast_speed import FastSpeed, rates
from burnish_engine.advise.predict.plan_options import split_plan
from burnish_engine.bench.step import StepBench
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.hardware.probe import probe

_NO_TIME = 1e30  # rate of what shall take no time
PARTS = {"gemm": ("products", "head"), "attention": ("attention",), "8-bit": ("eight_bits", "int8"),
         "bytes": ("memory", "unpacking", "rotating")}  # fmt: skip
"""Part of a step: the rates that its time goes by."""


def predicted_ms(bench: StepBench, span: float, longest: int, tokens: int) -> dict[str, float]:
    """Predict the milliseconds of a step of the bench's plan: `total`, those of `PARTS`, and `starts` of kernels.

    Args:
        bench: measurement.
        span: length of the document that a token is in, averaged over the tokens.
        longest: length of the longest document, tokens.
        tokens: mean number of tokens of a step, all of them supervised.
    """
    options, cuda, machine = bench.options, bench.device.type == "cuda", probe()
    bucket = -(-options.tokens // BUCKET_MULTIPLE) * BUCKET_MULTIPLE
    size = MicroBatchSize(tokens, tokens, bucket=bucket, longest=longest, span=span)
    adapter = AdapterSection(rank=options.rank, alpha=float(options.rank))
    run = FastRun(
        Recipe(adapter=adapter, train=options.section),
        bench.spec,
        size,
        cuda=cuda,
        precision=options.precision,
        nf4=options.method == "qlora",
        eight_bits=options.eight_bits,
        gpu=used_gpu() if cuda else None,
        cpu_cores=machine.cpu_cores,
    )
    plans, left = [split_plan(bench.plan)], rates(run)

    def milliseconds() -> float:
        return 1000 * float(FastSpeed(run, size, left).seconds(plans)[0])

    found = {"total": milliseconds()}
    for part, names in PARTS.items():
        before = milliseconds()
        left = left._replace(**dict.fromkeys(names, _NO_TIME))
        found[part] = before - milliseconds()
    return found | {"starts": milliseconds()}


def used_gpu() -> GpuFacts:
    """Return what NVML says of the GPU in use; its name and capability where NVML does not list it."""
    name = torch.cuda.get_device_name()
    bare = GpuFacts(index=0, name=name, compute_capability=torch.cuda.get_device_capability())
    return next((gpu for gpu in probe().gpus if gpu.name == name), bare)
