"""List duels, and describe one as a window shows it: how far it is, and its verdicts with the pairs behind them."""

from __future__ import annotations

import functools
import math
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import duels_dir
from burnish_engine.contract.run.duels import (
    JUDGES,
    DuelDifferenceFacts,
    DuelFacts,
    DuelRun,
    DuelSideFacts,
    DuelStatus,
    DuelVerdictFacts,
)
from burnish_engine.contract.run.process_end import end_text
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.planner import next_run, run_counts, run_seconds
from burnish_engine.duel.prepare import DuelForecast
from burnish_engine.duel.report.figures import compared_runs, interleaved_runs
from burnish_engine.duel.sides.differences import shown
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.duel.state import DuelFolder, DuelState, has_process, open_duel
from burnish_engine.duel.verdict.conclude import CHOSEN_LOSS, MEASURES
from burnish_engine.duel.verdict.effects import contrast_by_seed
from burnish_engine.duel.verdict.verdict import DuelVerdict, few_seeds_note, headline
from burnish_engine.runs.store import read_process_end, read_state

_LOG_BYTES = 4096


def list_duels() -> list[DuelFacts]:
    """List the duels in the user's folder, newest first, without those that cannot be read."""
    found = []
    folder = duels_dir()
    for root in folder.iterdir() if folder.is_dir() else ():
        if is_file(DuelFolder(root).state):
            with suppress(UsageError):
                found.append(duel_facts(root))
    return sorted(found, key=lambda duel: duel.created, reverse=True)


def duel_facts(root: Path) -> DuelFacts:
    """Describe a duel that was begun.

    Raises:
        UsageError: There is no duel, or its state cannot be read.
    """
    folder = DuelFolder(root.absolute())
    state = _state(folder.root, folder.state.stat().st_mtime_ns if is_file(folder.state) else 0)
    running = has_process(folder)
    status: DuelStatus = "finished" if state.status == "finished" else "running" if running else "stopped"
    spec = next_run(state.sides, state.options, state.seed, state.scores) if status != "finished" else None
    return _described(
        state,
        status,
        folder=str(folder.root),
        made=[_ended(folder, one) for one in state.outcomes],
        current=_current(folder, spec) if spec is not None else None,
        message=_why_stopped(folder, state) if status == "stopped" else "",
        report=str(folder.report) if folder.report.is_file() else "",
    )


def planned_facts(forecast: DuelForecast) -> DuelFacts:
    """Describe a duel that could begin."""
    sides = zip(forecast.state.sides, forecast.plans, strict=True)
    problems = [f"{side.name}: {' '.join(plan.problems)}" for side, plan in sides if not plan.fits]
    return _described(forecast.state, "planned", problems=problems)


def _described(state: DuelState, status: DuelStatus, **more: object) -> DuelFacts:
    sides = [DuelSideFacts(letter=one.letter, name=one.name, rate=one.rate, run_s=one.run_s) for one in state.sides]
    caution = few_seeds_note(state.options.seeds, state.level)
    return DuelFacts.model_validate(
        {
            "created": state.created,
            "status": status,
            "judge": state.judge,
            "tried": state.tried,
            "sides": sides,
            "differences": [
                DuelDifferenceFacts(
                    key=one.key, values=[shown(value) for value in one.values], kind=one.kind, why=one.why
                )
                for one in state.differences
            ],
            "factors": state.options.factors,
            "seeds": state.options.seeds,
            "runs": run_counts(state.sides, state.options),
            "seconds": run_seconds(state.sides, state.options),
            "headline": headline(state.verdicts) if state.verdicts else "",
            "verdicts": [_verdict(state, one) for one in state.verdicts],
            "checks": state.checks,
            "caution": caution,
            **more,
        }
    )


@functools.lru_cache(maxsize=64)
def _state(root: Path, _changed_ns: int) -> DuelState:
    """Read a duel's state, cached: a window asks every second, and it changes with each run only."""
    return open_duel(root)[1]


def _run(folder: DuelFolder, spec: RunSpec) -> dict[str, object]:
    return {
        "id": spec.id,
        "folder": str(folder.run(spec).root),
        "side": spec.side,
        "phase": spec.phase,
        "seed": spec.seed,
        "rate": spec.rate,
    }


def _ended(folder: DuelFolder, outcome: RunOutcome) -> DuelRun:
    return DuelRun.model_validate(
        {
            **_run(folder, outcome.spec),
            "ended": outcome.ended,
            "step": outcome.steps,
            "total_steps": outcome.steps,
            "held_out_loss": outcome.held_out_loss,
            "preferred": outcome.pair_accuracy,
            "tokens_per_s": outcome.tokens_per_s,
            "memory_bytes": outcome.memory_bytes,
            "seconds": outcome.training_s,
        }
    )


def _current(folder: DuelFolder, spec: RunSpec) -> DuelRun:
    steps = {"step": 0, "total_steps": 0}
    with suppress(BurnishError):
        state = read_state(folder.run(spec))
        steps = {"step": state.step, "total_steps": state.total_steps}
    return DuelRun.model_validate({**_run(folder, spec), **steps})


def _verdict(state: DuelState, one: DuelVerdict) -> DuelVerdictFacts:
    return DuelVerdictFacts(
        measure=one.measure,
        title=one.title,
        form=one.form,
        sides=one.sides,
        names=one.names,
        kind=one.kind,
        winner=one.winner,
        difference=one.difference,
        low=one.low,
        high=one.high,
        level=one.level,
        pairs=_pairs(state, one),
        text=one.text,
    )


def _pairs(state: DuelState, verdict: DuelVerdict) -> list[float]:
    """List the difference of each pair of runs that a verdict rests on, in its unit."""
    of_side = compared_runs if verdict.measure in JUDGES else interleaved_runs
    ratio = verdict.form == "share"
    values = [
        {one.spec.seed: value for one in of_side(state, side) if (value := _value(one, verdict.measure)) is not None}
        for side in verdict.weights
    ]
    found = contrast_by_seed([*verdict.weights.values()], values, ratio=ratio)
    return [math.expm1(one) if ratio else one for one in found if math.isfinite(one)]


def _value(outcome: RunOutcome, measure: str) -> float | None:
    if measure in JUDGES:
        return outcome.score
    return next(one.value(outcome) for one in (CHOSEN_LOSS, *MEASURES) if one.key == measure)


def _why_stopped(folder: DuelFolder, state: DuelState) -> str:
    """Return how the duel's process died where its parent saw that, else its last words."""
    end = read_process_end(folder.end, since=state.created)
    died = end is not None and end.cause not in ("ended", "asked")
    return end_text(end) if end is not None and died else _last_words(folder)


def _last_words(folder: DuelFolder) -> str:
    """Return the last lines that the duel's process printed; empty where a terminal showed them."""
    try:
        with folder.output.open("rb") as file:
            file.seek(max(folder.output.stat().st_size - _LOG_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Continue with: burnish" not in line]
    return " ".join(lines[-4:])
