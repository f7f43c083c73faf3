"""The memory plan that a planned run of the fast engine would start with. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.calibrate import room_for_prediction
from burnish_engine.advise.fast_memory import CONTEXT_BYTES, host_bytes
from burnish_engine.advise.memory_solver import MARGIN_BYTES, choose_plan, least_plan, usable_bytes
from burnish_engine.advise.planned_run import FastRun, PlannedRun
from burnish_engine.advise.shape import GIB
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.memory_plan import MemoryPlan
from burnish_engine.hardware.host_memory import lockable_of

LOADING_BYTES = 2 * GIB
"""System memory for libraries and buffers, beside what layers keep there."""


@dataclass(frozen=True)
class MemoryChoice:
    """How a run would use memory.

    Attributes:
        run: The run.
        plan: Fits, or takes the least of all where none does.
        budget_bytes: What the run may take of the device: as the recipe says, else what is free less a margin.
        locked_bytes: What it takes of host memory for what layers keep, and for embeddings and head.
    """

    run: FastRun
    plan: MemoryPlan
    budget_bytes: int
    locked_bytes: int


def choose_memory(run: PlannedRun, largest: Pass, free: int, *, quick: bool = False) -> MemoryChoice:
    """The plan that a run of the fast engine would start with.

    Args:
        run: The run.
        largest: Its largest pass.
        free: Bytes free on its device. What past runs took beyond the prediction, or less, is allowed for.
        quick: See `choose_plan`.
    """
    cuda = run.device.cuda
    fast = FastRun(
        recipe=run.recipe,
        spec=run.spec,
        largest=largest,
        cuda=cuda,
        precision=run.device.precision,
        nf4=run.engine.nf4,
        gpu=run.device.gpu(run.machine),
        cpu_cores=run.machine.cpu_cores,
    )
    host = host_budget(run)
    budget, most = usable_bytes(free, cuda=cuda), free - MARGIN_BYTES[cuda]
    if run.recipe.memory.budget_gib:
        budget = min(int(run.recipe.memory.budget_gib * GIB), most)
    beside = CONTEXT_BYTES if cuda else 0
    plan = None
    # A narrow fit is better than none.
    for room in (budget,) if run.recipe.memory.budget_gib else (budget, most):
        before = room_for_prediction(run, room, beside)
        plan = plan or choose_plan(fast, budget_bytes=before, host_budget_bytes=host, quick=quick)
    plan = plan or least_plan(fast, host_budget_bytes=host)
    return MemoryChoice(fast, plan, budget, host_bytes(fast, plan))


def host_budget(run: PlannedRun) -> int:
    """Host memory that the run's layers may keep something in, bytes."""
    gpu = run.device.gpu(run.machine)
    if gpu is None or gpu.unified_memory:
        return 0
    machine = run.machine
    return lockable_of(machine.ram_total_bytes, machine.ram_free_bytes - LOADING_BYTES, halved=_is_windows(machine))


def _is_windows(machine: MachineFacts) -> bool:
    """Whether Windows' driver manages the memory, which it does for the Linux within Windows too."""
    return machine.os.startswith("Windows") or "microsoft" in machine.os.lower()
