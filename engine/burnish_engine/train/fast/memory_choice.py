"""Choose the memory plan that a run of the fast engine starts with: the recipe's pins, and what fits for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.planned_run import FastRun, PlannedDevice, PlannedRun, sharing
from burnish_engine.advise.facts.shape import BYTES_OF, GIB, embedding_parameters
from burnish_engine.advise.facts.workload import BUCKET_MULTIPLE, MicroBatchSize, buckets
from burnish_engine.advise.plan.memory_solver import peak_bytes, smallest_memory_plan, solve_memory_plan
from burnish_engine.advise.plan.planned_memory import choose_memory
from burnish_engine.advise.predict.fast_memory import CONTEXT_BYTES
from burnish_engine.advise.predict.fast_shape import distinct_layers, hosted_layer
from burnish_engine.advise.predict.fast_speed import FastSpeed
from burnish_engine.advise.predict.level_mixes import spread_layers
from burnish_engine.advise.predict.plan_options import split_plan
from burnish_engine.advise.predict.transfers import SLOTS
from burnish_engine.contract.errors import DoesNotFitError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.memory_plan import AUTO, MemoryPlan, parse_weight_places, weight_places
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.topology import beside_others
from burnish_engine.hardware.host.host_memory import host_memory, lockable_bytes
from burnish_engine.hardware.probe import probe
from burnish_engine.train.base.stream import BatchStream


def choose_memory_plan(
    recipe: Recipe,
    spec: DecoderSpec,
    stream: BatchStream,
    device: torch.device,
    *,
    precision: str,
    nf4: bool,
    eight_bits: EightBitUse = NO_EIGHT_BITS,
    ranks: int = 1,
) -> MemoryPlan:
    """Choose the memory plan before anything is loaded; the smallest plan where none is predicted to fit.

    Args:
        recipe: recipe of the run; settings that its `memory` section pins stay.
        spec: shape of the model.
        stream: micro-batches of the run.
        device: device to train on.
        precision: "fp32", "bf16" or "fp16".
        nf4: whether the frozen weights are held in 4 bits.
        eight_bits: what is held and multiplied in 8 bits.
        ranks: number of processes that can share layers' weights.
    """
    cuda, machine = device.type == "cuda", probe()
    target = PlannedDevice(cuda, device.index or 0, precision)
    run = PlannedRun(
        recipe, spec, machine, target, EngineChoice(fast=True, nf4=nf4, eight_bits=eight_bits), None, ranks
    )
    return choose_memory(run, largest_pass(recipe.train, stream), _free_bytes(device)).plan


def with_weights_on_host(
    plan: MemoryPlan,
    recipe: Recipe,
    spec: DecoderSpec,
    *,
    room: int,
    precision: str,
    nf4: bool,
    eight_bits: EightBitUse = NO_EIGHT_BITS,
    ranks: int = 1,
) -> MemoryPlan:
    """Return a plan that keeps embeddings, head and the weights of layers in host memory as far as these find room.

    Layers that do not are shared by the ranks, if there are several.

    Args:
        plan: memory plan.
        recipe: recipe of the run; pinned places of weights stay.
        spec: shape of the model.
        room: bytes of host memory that may be page-locked.
        precision: "fp32", "bf16" or "fp16".
        nf4: whether the frozen weights are held in 4 bits.
        eight_bits: what is held and multiplied in 8 bits.
        ranks: number of processes that can share layers' weights.
    """
    count, pinned = spec.num_layers, recipe.memory.weights
    changes: dict[str, object] = {"embedding_on_host": True, "head_on_host": True}
    if pinned == AUTO:
        layers, _ = distinct_layers(spec)
        block = max(
            hosted_layer(spec, recipe.adapter, layer, precision, nf4=nf4, eight_bits=eight_bits).block
            for layer in layers
        )
        tables = embedding_parameters(spec) * BYTES_OF[precision] * (1 if spec.tied_embeddings else 2)
        most = min(count, max(room - tables, 0) // block)
        shared = range(count) if ranks > 1 else ()
        if most > max(SLOTS, len(plan.layers_on_host)):
            changes["weights"] = weight_places(spread_layers(most, count), count, shared)
        elif ranks > 1:
            changes["weights"] = weight_places(plan.layers_on_host, count, shared)
    else:
        changes["weights"] = parse_weight_places(pinned, count)
    return plan.model_copy(update=changes)


@dataclass(frozen=True)
class BudgetPlan:
    """The fastest memory plan within a budget.

    Attributes:
        plan: memory plan.
        peak_bytes: predicted peak of the process's device memory.
        seconds: predicted time of a pass.
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
    eight_bits: EightBitUse = NO_EIGHT_BITS,
    host_bytes: int | None = None,
    or_least: bool = False,
    ranks: int = 1,
) -> BudgetPlan:
    """Choose the fastest plan within a budget for passes in which every token is supervised; no evaluation is planned.

    Args:
        budget_bytes: device memory that the process may hold.
        recipe: recipe whose adapter, optimizer and masking sections count.
        spec: shape of the model.
        lengths: tokens of each document in a pass.
        device: device to train on.
        tokens: tokens of a pass.
        precision: "fp32", "bf16" or "fp16".
        nf4: whether the frozen weights are held in 4 bits.
        eight_bits: what is held and multiplied in 8 bits.
        host_bytes: bytes of host memory that may be page-locked; None: as many as a run would lock.
        ranks: number of processes that can share layers' weights.
        or_least: whether to return the smallest plan where none fits, as a run does, instead of raising.

    Raises:
        DoesNotFitError: No plan fits the budget.
    """
    largest = MicroBatchSize(
        tokens=tokens,
        supervised_tokens=tokens,
        bucket=-(-tokens // BUCKET_MULTIPLE) * BUCKET_MULTIPLE,
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
        eight_bits=eight_bits,
        gpu=beside_others(machine, PlannedDevice(cuda, device.index or 0, precision).gpu(machine), ranks),
        cpu_cores=machine.cpu_cores,
        ranks=ranks,
        peer_gb_s=sharing(recipe, machine, ranks)[1],
    )
    host = lockable_memory(device) if host_bytes is None else host_bytes
    plan = solve_memory_plan(run, budget_bytes=budget_bytes, host_budget_bytes=host)
    if plan is None:
        plan = smallest_memory_plan(run, host_budget_bytes=host)
        least = peak_bytes(run, plan) / GIB
        if not or_least:
            remedy = f"Give at least {least:.3f} GiB."
            raise DoesNotFitError(f"No plan takes {memory_size(budget_bytes)} or less.", remedy)
    seconds = float(FastSpeed(run, largest).seconds([split_plan(plan)])[0])
    return BudgetPlan(plan, peak_bytes(run, plan), seconds)


def largest_pass(section: TrainSection, stream: BatchStream) -> MicroBatchSize:
    """Describe the run's largest pass."""
    rows = pass_buckets(section, stream)[-1]
    return MicroBatchSize(
        tokens=min(stream.most_tokens, rows),
        supervised_tokens=min(stream.most_supervised, rows),
        bucket=rows,
        longest=stream.longest_document,
        span=stream.span,
    )


def pass_buckets(section: TrainSection, stream: BatchStream) -> tuple[int, ...]:
    """List the capacities, in tokens, of the buckets that a run's passes fall into."""
    return buckets(section.micro_batch_tokens, section.pack, stream.most_tokens)


def lockable_memory(device: torch.device) -> int:
    """Return how many bytes of host memory may be page-locked for activations and weights; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    return lockable_bytes(integrated=bool(torch.cuda.get_device_properties(device).is_integrated))


def _free_bytes(device: torch.device) -> int:
    """Add up the memory that this process may use: the free memory and what it already holds."""
    if device.type != "cuda":
        import psutil

        return host_memory()[1] + int(psutil.Process().memory_info().rss)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) + CONTEXT_BYTES  # the plan counts the context too
