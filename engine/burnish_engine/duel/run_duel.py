"""Run a duel: make run after run, record each when it has ended, then conclude the verdicts.

An interrupted duel resumes where it was: the next run follows from the recorded ones (`planner`), a run that has ended
is recorded from its folder, and one that has not resumes from its checkpoint.
"""

from __future__ import annotations

from typing import Protocol

from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile
from burnish_engine.duel import state as states
from burnish_engine.duel.measures.checks import fairness_checks, refuse_unlike
from burnish_engine.duel.measures.energy import EnergyWatch, meter_for
from burnish_engine.duel.measures.outcome import RunOutcome, outcome_of
from burnish_engine.duel.planner import next_run
from burnish_engine.duel.run_process import discard_checkpoints, run_one
from burnish_engine.duel.sides.differences import changed_conditions
from burnish_engine.duel.sides.spec import RunSpec, run_recipe
from burnish_engine.duel.state import DuelFolder, DuelState
from burnish_engine.duel.verdict.conclude import conclude


class DuelListener(Protocol):
    """Receiver of a duel's progress."""

    def run_begins(self, state: DuelState, spec: RunSpec) -> None:
        """Handle the start or the resumption of a run."""

    def run_progress(self, run: RunStateFile, status: ObservedStatus) -> None:
        """Handle the current state of the run; called often."""

    def run_ended(self, state: DuelState, outcome: RunOutcome) -> None:
        """Handle the end of a run."""


def run_duel(folder: DuelFolder, listener: DuelListener) -> DuelState:
    """Make the remaining runs of a duel and conclude it.

    Args:
        folder: folder of a duel that was begun.
        listener: receiver of the progress.

    Returns:
        The finished duel; it is also on disk.

    Raises:
        KeyboardInterrupt: The person interrupted; the run was saved.
        BurnishError: A run failed other than by diverging, or conditions differ. Resuming tries again.
    """
    with states.owned(folder):
        _, state = states.open_duel(folder.root)
        recipes = states.side_recipes(folder, state)
        while (spec := _next(state)) is not None:
            listener.run_begins(state, spec)
            outcome = measure_run(folder, state, recipes[spec.side], spec, listener)
            state = record(folder, state, outcome)
            listener.run_ended(state, outcome)
            if not state.options.anyway:
                refuse_unlike(state.checks)
        verdicts = conclude(state.sides, state.options, state.seed, state.outcomes, state.judge, tried=state.tried)
        state = state.model_copy(update={"verdicts": verdicts, "status": "finished"})
        states.write_state(folder, state)
    return state


def record(folder: DuelFolder, state: DuelState, outcome: RunOutcome) -> DuelState:
    """Record a run's outcome, and delete the checkpoints that only its resuming would need.

    Returns:
        State with the outcome; it is also on disk.

    Raises:
        NoSpaceError: The state cannot be written.
    """
    outcomes = [*state.outcomes, outcome]
    checks = fairness_checks(outcomes, state.sides, changed_conditions(state.tried))
    state = state.model_copy(update={"outcomes": outcomes, "checks": checks})
    states.write_state(folder, state)
    discard_checkpoints(folder.run(outcome.spec))
    return state


def _next(state: DuelState) -> RunSpec | None:
    return next_run(state.sides, state.options, state.seed, state.scores)


def measure_run(
    folder: DuelFolder, state: DuelState, recipe: Recipe, spec: RunSpec, listener: DuelListener
) -> RunOutcome:
    """Make one run, or the rest of it, and measure it.

    Args:
        folder: folder of the duel.
        state: state of the duel.
        recipe: recipe of the side.
        spec: identity of the run.
        listener: receiver of the run's progress.

    Raises:
        KeyboardInterrupt: The person interrupted, or a file asked to stop; the run was saved.
        BurnishError: The run failed other than by diverging.
    """

    def watch(run: RunStateFile, status: ObservedStatus) -> None:
        listener.run_progress(run, status)
        if folder.stop.exists():
            raise KeyboardInterrupt

    paths, file = folder.run(spec), folder.run_recipe(spec)
    write_atomic(file, dump_recipe(run_recipe(recipe, spec, every=state.every)))
    with EnergyWatch(meter_for(recipe.devices), folder.energy(spec)):
        run_one(paths, file, folder.log(spec), watch)
    return outcome_of(spec, paths, folder.energy(spec), state.judge)
