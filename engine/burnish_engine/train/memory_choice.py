"""Which memory plan a run of the fast engine starts with: what the recipe pins, and for the rest what fits now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish_engine.advise.engine_choice import EngineChoice
from burnish_engine.advise.fast_memory import CONTEXT_BYTES, of_plan
from burnish_engine.advise.fast_speed import FastSpeed
from burnish_engine.advise.memory_solver import choose_plan, least_plan, peak_bytes
from burnish_engine.advise.planned_memory import choose_memory
from burnish_engine.advise.planned_run import Device, FastRun, PlannedRun
from burnish_engine.advise.shape import GIB
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.errors import DoesNotFitError
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.memory_plan import MemoryPlan
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_train import TrainSection
from burnish_engine.hardware.host_memory import host_memory, lockable_bytes
from burnish_engine.hardware.probe import probe
from burnish_engine.train.packed_batch import BUCKET_MULTIPLE, buckets
from burnish_engine.train.stream import BatchStream


def choose_memory_plan(
    recipe: Recipe, spec: DecoderSpec, stream: BatchStream, device: torch.device, *, precision: str, nf4: bool
) -> MemoryPlan:
    """The plan to start with, before anything is loaded; the smallest there is where none is predicted to fit.

    Args:
        recipe: The run; what its `memory` pins stays.
        spec: The model's shape.
        stream: The run's passes.
        device: Where to train.
        precision: "fp32", "bf16" or "fp16".
        nf4: Whether the frozen weights will stand in 4 bits.
    """
    cuda, machine = device.type == "cuda", probe()
    target = Device(cuda, device.index or 0, precision)
    run = PlannedRun(recipe, spec, machine, target, EngineChoice(fast=True, nf4=nf4), None)
    return choose_memory(run, largest_pass(recipe.train, stream), _free_bytes(device)).plan


@dataclass(frozen=True)
class BudgetPlan:
    """The fastest plan within a budget.

    Attributes:
        plan: It.
        peak_bytes: What the process is predicted to hold.
        seconds: Predicted time of a pass.
    """

    plan: MemoryPlan
    peak_bytes: int
    seconds: float


def plan_within(
    budget_bytes: float,
    recipe: Recipe,
    spec: DecoderSpec,
    lengths: Sequence[int],
    device: torch.device,
    *,
    tokens: int,
    precision: str,
    nf4: bool,
    or_least: bool = False,
) -> BudgetPlan:
    """The plan for passes of documents of some lengths, all learned from; nothing is evaluated.

    Args:
        budget_bytes: What the process may hold of the device.
        recipe: Of it, adapter, optimizer and masking.
        spec: The model's shape.
        lengths: Of documents, tokens.
        device: Where to train.
        tokens: Of a pass.
        precision: "fp32", "bf16" or "fp16".
        nf4: Whether the frozen weights stand in 4 bits.
        or_least: Where none fits, the one that takes the least, as a run does.

    Raises:
        DoesNotFitError: No plan takes so little.
    """
    largest = Pass(
        tokens=tokens,
        supervised=tokens,
        rows=-(-tokens // BUCKET_MULTIPLE) * BUCKET_MULTIPLE,
        longest=max(lengths),
        span=sum(length * length for length in lengths) / sum(lengths),
    )
    cuda, machine = device.type == "cuda", probe()
    run = FastRun(
        recipe=recipe,
        spec=spec,
        largest=largest,
        cuda=cuda,
        precision=precision,
        nf4=nf4,
        gpu=Device(cuda, device.index or 0, precision).gpu(machine),
        cpu_cores=machine.cpu_cores,
    )
    host = lockable_memory(device)
    plan = choose_plan(run, budget_bytes=budget_bytes, host_budget_bytes=host)
    if plan is None:
        plan = least_plan(run, host_budget_bytes=host)
        least = peak_bytes(run, plan) / GIB
        if not or_least:
            remedy = f"Give at least {least:.3f} GiB."
            raise DoesNotFitError(f"No plan takes {budget_bytes / GIB:g} GiB or less.", remedy)
    seconds = float(FastSpeed(run, largest).seconds([of_plan(plan)])[0])
    return BudgetPlan(plan, peak_bytes(run, plan), seconds)


def largest_pass(section: TrainSection, stream: BatchStream) -> Pass:
    """The run's largest pass."""
    rows = pass_buckets(section, stream)[-1]
    return Pass(
        tokens=min(stream.most_tokens, rows),
        supervised=min(stream.most_supervised, rows),
        rows=rows,
        longest=stream.longest_document,
        span=stream.span,
    )


def pass_buckets(section: TrainSection, stream: BatchStream) -> tuple[int, ...]:
    """Rows of the buckets that a run's passes fall into."""
    return buckets(section.micro_batch_tokens, section.pack, stream.most_tokens)


def lockable_memory(device: torch.device) -> int:
    """Bytes of host memory that may be page-locked for what layers keep; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    return lockable_bytes(integrated=bool(torch.cuda.get_device_properties(device).is_integrated))


def _free_bytes(device: torch.device) -> int:
    """What this process may take altogether: what is free, and what it has."""
    if device.type != "cuda":
        import psutil

        return host_memory()[1] + int(psutil.Process().memory_info().rss)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) + CONTEXT_BYTES  # the plan counts the context too
