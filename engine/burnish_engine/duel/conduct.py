"""Carry a duel out: run after run, each recorded when it has ended, then the verdicts.

Interrupted at any moment, it goes on where it was: what the next run is follows from what is recorded (`planner`), a
run that has ended is recorded from its folder, and one that has not goes on from its checkpoint.
"""

from __future__ import annotations

from typing import Protocol

from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.contract.state import RunStateFile, Standing
from burnish_engine.duel import state as states
from burnish_engine.duel.carry import carry_out, discard_checkpoints
from burnish_engine.duel.checks import check, refuse_unlike
from burnish_engine.duel.conclude import conclude
from burnish_engine.duel.energy import EnergyWatch, meter_for
from burnish_engine.duel.outcome import RunOutcome, outcome_of
from burnish_engine.duel.planner import next_run
from burnish_engine.duel.spec import RunSpec, run_recipe
from burnish_engine.duel.state import DuelFolder, DuelState


class Audience(Protocol):
    """Who is told how the duel goes."""

    def begins(self, state: DuelState, spec: RunSpec) -> None:
        """A run begins, or goes on."""

    def goes_on(self, run: RunStateFile, standing: Standing) -> None:
        """Where the run stands; told often."""

    def ended(self, state: DuelState, outcome: RunOutcome) -> None:
        """A run has ended."""


def conduct(folder: DuelFolder, audience: Audience) -> DuelState:
    """Carry out what is left of a duel.

    Args:
        folder: Of a duel that was begun.
        audience: Is told.

    Returns:
        The finished duel; it is also on disk.

    Raises:
        KeyboardInterrupt: The person interrupted; the run was saved.
        BurnishError: A run failed otherwise than by diverging, or conditions differ. Resuming tries again.
    """
    with states.owned(folder):
        _, state = states.open_duel(folder.root)
        recipes = states.side_recipes(folder, state)
        while (spec := _next(state)) is not None:
            audience.begins(state, spec)
            outcome = make_run(folder, state, recipes[spec.side], spec, audience)
            state = record(folder, state, outcome)
            audience.ended(state, outcome)
            if not state.options.anyway:
                refuse_unlike(state.checks)
        verdicts = conclude(state.sides, state.options, state.seed, state.outcomes)
        state = state.model_copy(update={"verdicts": verdicts, "status": "finished"})
        states.write_state(folder, state)
    return state


def record(folder: DuelFolder, state: DuelState, outcome: RunOutcome) -> DuelState:
    """Write down what a run came to, and delete what only its resuming would need.

    Returns:
        The duel with it; it is also on disk.

    Raises:
        NoSpaceError: It cannot be written.
    """
    outcomes = [*state.outcomes, outcome]
    state = state.model_copy(update={"outcomes": outcomes, "checks": check(outcomes, state.sides)})
    states.write_state(folder, state)
    discard_checkpoints(folder.run(outcome.spec))
    return state


def _next(state: DuelState) -> RunSpec | None:
    return next_run(state.sides, state.options, state.seed, state.scores)


def make_run(folder: DuelFolder, state: DuelState, recipe: Recipe, spec: RunSpec, audience: Audience) -> RunOutcome:
    """Carry out one run, or what is left of it.

    Args:
        folder: Of the duel.
        state: Of the duel.
        recipe: The side's.
        spec: Which run.
        audience: Told where it stands.

    Raises:
        KeyboardInterrupt: The person interrupted; the run was saved.
        BurnishError: It failed otherwise than by diverging.
    """
    paths, file = folder.run(spec), folder.run_recipe(spec)
    write_atomic(file, dump_recipe(run_recipe(recipe, spec, every=state.every)))
    with EnergyWatch(meter_for(recipe.devices), folder.energy(spec)):
        carry_out(paths, file, folder.log(spec), audience.goes_on)
    return outcome_of(spec, paths, folder.energy(spec))
