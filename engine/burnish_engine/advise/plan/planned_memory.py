"""Chooses the memory plan that a planned run of the fast engine would start with. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.facts.planned_run import FastRun, PlannedRun
from burnish_engine.advise.facts.shape import GIB
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.calibrate import room_for_prediction
from burnish_engine.advise.plan.memory_solver import (
    MARGIN_BYTES,
    smallest_memory_plan,
    solve_memory_plan,
    usable_bytes,
)
from burnish_engine.advise.predict.fast_memory import CONTEXT_BYTES, host_bytes
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.hardware.host.host_memory import lockable_of

LOADING_BYTES = 2 * GIB
"""System memory for libraries and buffers, beside offloaded activations and weights."""


@dataclass(frozen=True)
class MemoryChoice:
    """The memory plan that a run would start with."""

    run: FastRun  # the run
    plan: MemoryPlan  # fastest memory plan that fits, or the smallest one where none does
    budget_bytes: int
    """Bytes that the run may take of the device: the recipe's budget, else the free memory less a margin."""
    locked_bytes: int  # bytes of host memory for offloaded activations, embeddings, head and layers' weights


def choose_memory(run: PlannedRun, largest: MicroBatchSize, free: int, *, quick: bool = False) -> MemoryChoice:
    """Choose the memory plan that a run of the fast engine would start with.

    Args:
        run: the run.
        largest: size of the largest micro-batch.
        free: bytes free on the device; the correction by past runs is taken into account.
        quick: whether a nearly fastest plan is enough, as in `solve_memory_plan`.
    """
    fast, cuda = run.on_fast_engine(largest), run.device.cuda
    host = host_budget(run.machine, run.device.gpu(run.machine)) // fast.ranks  # each process locks its own
    budget, most = usable_bytes(free, cuda=cuda), free - MARGIN_BYTES[cuda]
    if run.recipe.memory.budget_gib:
        budget = min(int(run.recipe.memory.budget_gib * GIB), most)
    beside = CONTEXT_BYTES if cuda else 0
    plan = None
    # A fit without margin is better than none.
    for room in (budget,) if run.recipe.memory.budget_gib else (budget, most):
        before = room_for_prediction(run, room, beside)
        plan = plan or solve_memory_plan(fast, budget_bytes=before, host_budget_bytes=host, quick=quick)
    plan = plan or smallest_memory_plan(fast, host_budget_bytes=host)
    return MemoryChoice(fast, plan, budget, host_bytes(fast, plan))


def host_budget(machine: MachineFacts, gpu: GpuFacts | None) -> int:
    """The host memory that a run may page-lock for activations and weights, bytes.

    Args:
        machine: facts of the machine.
        gpu: GPU that trains; None for the CPU.
    """
    if gpu is None or gpu.unified_memory:
        return 0
    return lockable_of(machine.ram_total_bytes, machine.ram_free_bytes - LOADING_BYTES, halved=_is_windows(machine))


def _is_windows(machine: MachineFacts) -> bool:
    """Whether Windows' driver manages the GPU's memory; it does so under WSL too."""
    return machine.os.startswith("Windows") or "microsoft" in machine.os.lower()
