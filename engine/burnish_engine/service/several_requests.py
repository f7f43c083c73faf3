"""Answer requests about several runs that belong together: sweeps and duels. Long work is done by other processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.sweeps import sweep_plan
from burnish_engine.contract.files import cannot_write
from burnish_engine.contract.recipe.sweep import SweepCell, expand
from burnish_engine.contract.serve.duel_requests import (
    DuelsRequest,
    ResumeDuelRequest,
    StartDuelRequest,
    StopDuelRequest,
)
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.run_requests import PlanSweepRequest, StartSweepRequest, SweepsRequest
from burnish_engine.duel.report.overview import duel_facts, list_duels
from burnish_engine.duel.state import DuelFolder, has_process, open_duel, write_owner
from burnish_engine.runs.jobs.sweeps import list_sweeps, queue_sweep, sweep_name
from burnish_engine.runs.process import identity, start_detached
from burnish_engine.service.machine import MachineCache
from burnish_engine.service.plans import PlanService, lease_of, refuse_unfit_sweep
from burnish_engine.service.recipes import read_recipe_text


class SeveralRequests:
    """Plan, start and list sweeps and duels.

    Args:
        machine: source of the machine's facts.
        plans: judge of whether a run fits.
        data: process that reads the data of a duel.
    """

    def __init__(self, machine: MachineCache, plans: PlanService, data: Child) -> None:
        self._machine, self._plans, self._data = machine, plans, data

    def plan_sweep(self, request: PlanSweepRequest, job: Job) -> Result:
        """Predict the runs of a sweep."""
        recipe = read_recipe_text(request.recipe)
        if request.dataset is not None:
            self._plans.remember(recipe, request.dataset)
        cells = expand(recipe, request.settings)
        return Result(id=request.id, sweep_plan=sweep_plan(request.settings, cells, self._plan_all(cells, job)))

    def start_sweep(self, request: StartSweepRequest, job: Job) -> Result:
        """Queue the runs of a sweep."""
        recipe = read_recipe_text(request.recipe)
        name = sweep_name(request.name, recipe.name or Path(recipe.model.path).name)
        cells = expand(recipe, request.settings)
        if not request.anyway:
            refuse_unfit_sweep(cells, self._plan_all(cells, job), self._machine.facts())
        job.check()
        facts = self._machine.facts()
        devices = [lease_of(cell.recipe, facts) for cell in cells]
        sweep = queue_sweep(name, request.settings, cells, devices, anyway=request.anyway)
        return Result(id=request.id, sweeps=[sweep])

    def sweeps(self, request: SweepsRequest, _job: Job) -> Result:
        """List the sweeps."""
        return Result(id=request.id, sweeps=list_sweeps())

    def start_duel(self, request: StartDuelRequest, job: Job) -> Result:
        """Create a duel and start the process that carries it out."""
        answer = self._data.ask(request, job, about="the recipes of the duel")
        if not answer.run:
            raise SetupError("The data process made no duel.", "Try again.")
        self._data.end_if_idle()  # its memory is room for the runs
        _start_process(Path(answer.run))
        return answer

    def duels(self, request: DuelsRequest, _job: Job) -> Result:
        """List the duels, or describe one."""
        return Result(id=request.id, duels=[duel_facts(Path(request.folder))] if request.folder else list_duels())

    def stop_duel(self, request: StopDuelRequest, _job: Job) -> Result:
        """Ask a duel to stop."""
        folder, _ = open_duel(Path(request.folder))
        if not has_process(folder):
            raise UsageError(f"The duel in {folder.root} is not running.", "There is nothing to stop.")
        try:
            folder.stop.touch()
        except OSError as error:
            raise cannot_write(folder.stop, error) from error
        return Result(id=request.id)

    def resume_duel(self, request: ResumeDuelRequest, _job: Job) -> Result:
        """Continue with a duel."""
        folder, state = open_duel(Path(request.folder))
        if state.status == "finished":
            raise UsageError(f"The duel in {folder.root} is finished.", "Begin a new one.")
        if has_process(folder):
            raise UsageError(f"The duel in {folder.root} is running already.", "Stop it first.")
        _start_process(folder.root)
        return Result(id=request.id, run=str(folder.root))

    def _plan_all(self, cells: Sequence[SweepCell], job: Job) -> list[RunPlan]:
        plans = []
        for number, cell in enumerate(cells):
            job.check()
            job.progress("Predicting runs", number, len(cells))
            plans.append(self._plans.plan(cell.recipe, job))
        return plans


def _start_process(root: Path) -> None:
    output = DuelFolder(root).output
    try:
        output.unlink(missing_ok=True)
        pid = start_detached(["duel", "--resume", str(root)], output, output, DuelFolder(root).end)
    except OSError as error:
        raise cannot_write(output, error) from error
    with suppress(psutil.NoSuchProcess):  # until the process writes the same itself
        write_owner(DuelFolder(root), *identity(pid))
