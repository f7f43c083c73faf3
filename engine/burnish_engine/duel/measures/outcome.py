"""Read the outcome of one run of a duel from its run folder."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.number import Number
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import RunCard
from burnish_engine.contract.run.duels import DuelJudge
from burnish_engine.contract.run.fold import RunState, StepHistory
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.units import memory_size
from burnish_engine.duel.measures.energy import energy_along
from burnish_engine.duel.measures.instability import Instability, event_places, judge
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import read_state

WARM_UP_STEPS = 3
"""Number of first steps of each process that do not count for the speed: kernels are compiled and graphs captured."""

_MOST_POINTS = 160
_MOST_STRETCHES = 40


class _StoredModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)


class CurvePoint(_StoredModel):
    """Loss at one step.

    Attributes:
        step: number of finished optimizer steps.
        tokens: number of real tokens trained on.
        seconds: time spent in steps, without loading, evaluation and saving.
        loss: loss, nats per supervised token.
    """

    step: int
    tokens: int
    seconds: float
    loss: Number


class CourseStretch(_StoredModel):
    """Consecutive steps: their speed and events, and totals until their end. None: not measured.

    Attributes:
        step: number of the last step.
        tokens: number of real tokens trained on until then.
        seconds: time spent in steps until then.
        tokens_per_s: speed of these steps.
        memory_bytes: peak memory until then.
        joules: energy of the GPU during steps until then.
        events: number of spikes, skipped steps and non-finite losses until then.
    """

    step: int
    tokens: int
    seconds: float
    tokens_per_s: float | None
    memory_bytes: int | None
    joules: float | None
    events: int


class RunConditions(_StoredModel):
    """Conditions that a fair comparison needs equal, as the run's card and events state them. Empty: unknown.

    Attributes:
        data: SHA-256 of all token ids and supervised flags, in order.
        order: SHA-256 of the number of tokens and of supervised tokens of each step, in order.
        schedule: SHA-256 of each step's learning rate as a share of the peak.
        held_out: number of held-out rows and supervised tokens that were evaluated.
        steps: number of optimizer steps and of trained tokens.
        precision: number format of the computation.
        device: name of the device, and its memory.
        base: SHA-256 of the base model's weights.
        versions: versions of everything that numbers depend on.
    """

    data: str = ""
    order: str = ""
    schedule: str = ""
    held_out: str = ""
    steps: str = ""
    precision: str = ""
    device: str = ""
    base: str = ""
    versions: dict[str, str] = {}


class RunOutcome(_StoredModel):
    """Outcome of one finished or diverged run. None: not measured.

    Attributes:
        spec: identity of the run.
        ended: ending of the run; diverged: it broke off (exit code 13), or its last held-out loss is not finite.
        message: reason, where the run broke off.
        steps: number of optimizer steps made.
        held_out_loss: loss after the last step, nats per supervised token.
        judge: measure that the duel is decided by.
        held_out_pairs: number of held-out pairs.
        pair_accuracy: share of them whose chosen reply is the likelier one, 0 to 1.
        chosen_loss: held-out loss of the chosen replies, nats per token.
        forgetting: loss on general text before training and after.
        task_share: share of scored held-out rows that the result answers rightly, 0 to 1.
        task_rows: number of these rows.
        tokens_per_s: speed: all tokens over the time of all steps, without warm-up.
        memory_bytes: peak memory.
        training_s: time spent in steps.
        joules: energy of the GPU during steps.
        tokens: number of real tokens trained on.
        resumes: number of times that another process resumed the run.
        engine: fast or plain, with the layout of rows and the memory plan.
        course: progress of the run, in stretches of equally many steps.
    """

    spec: RunSpec
    ended: Literal["finished", "diverged"]
    message: str = ""
    steps: int = 0
    tokens: int = 0
    held_out_loss: Number | None = None
    judge: DuelJudge = "held_out_loss"
    held_out_pairs: int = 0
    pair_accuracy: Number | None = None
    chosen_loss: Number | None = None
    forgetting: Forgetting | None = None
    task_share: float | None = None
    task_rows: int = 0
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    training_s: float = 0.0
    joules: float | None = None
    instability: Instability = Instability()
    resumes: int = 0
    engine: str = ""
    training: list[CurvePoint] = []
    evaluations: list[CurvePoint] = []
    course: list[CourseStretch] = []
    conditions: RunConditions = RunConditions()

    @property
    def score(self) -> float:
        """The judge's measure after the last step, lower is better; infinite where the run diverged."""
        error = None if self.pair_accuracy is None else 1.0 - self.pair_accuracy
        value = self.held_out_loss if self.judge == "held_out_loss" else error
        return math.inf if self.ended == "diverged" or value is None else value


def outcome_of(spec: RunSpec, paths: RunPaths, energy: Path, decided_by: DuelJudge = "held_out_loss") -> RunOutcome:
    """Read the outcome of a run that has ended.

    Args:
        spec: identity of the run.
        paths: paths of the run.
        energy: file of samples taken during the run; it may be missing.
        decided_by: measure that decides the duel.
    """
    run, state = read_run(paths.events), read_state(paths)
    steps = run.steps
    points = _points(steps)
    evaluations = _evaluations(run, points)
    last = evaluations[-1].loss if evaluations else None
    broke_off = state.exit_code == ExitCode.DIVERGED
    pairs = None if broke_off else run.held_out_pairs
    task = None if broke_off or run.task is None else run.task.after
    diverged = broke_off or (last is not None and not math.isfinite(last))
    card = read_card(paths)
    ends = zip(steps.t.values(), steps.step_s.values(), strict=True)
    joules = energy_along(energy, [(end - seconds, end) for end, seconds in ends])
    return RunOutcome(
        spec=spec,
        ended="diverged" if diverged else "finished",
        message=state.message if diverged else "",
        steps=len(steps),
        tokens=points[-1].tokens if points else 0,
        held_out_loss=None if broke_off else last,
        judge=decided_by,
        held_out_pairs=pairs.pairs if pairs else 0,
        pair_accuracy=pairs.accuracy if pairs else None,
        chosen_loss=pairs.chosen_loss if pairs else None,
        forgetting=None if broke_off else run.forgetting,
        task_share=task.share if task else None,
        task_rows=task.rows if task else 0,
        tokens_per_s=_speed(run),
        memory_bytes=run.highest_bytes or None,
        training_s=points[-1].seconds if points else 0.0,
        joules=joules[-1] if joules else None,
        instability=judge(
            steps.loss.values(),
            steps.grad_norm.values(),
            broke_off=broke_off and _is_without_number(state.message, steps),
        ),
        resumes=max(run.processes - 1, 0),
        engine=_engine(run, card),
        training=_thinned(points),
        evaluations=evaluations,
        course=_course(steps, points, joules),
        conditions=_conditions(spec, card, run, whole=not broke_off),
    )


def _is_without_number(message: str, steps: StepHistory) -> bool:
    """Whether a run ended for a non-finite value, at a step that is not among its events."""
    recorded = not math.isfinite((steps.loss.last or 0.0) + (steps.grad_norm.last or 0.0))
    return not recorded and re.search(r"\b(nan|inf)\b", message.lower()) is not None


def _points(steps: StepHistory) -> list[CurvePoint]:
    totals = accumulate(steps.tokens.values()), accumulate(steps.step_s.values())
    rows = zip(steps.step.values(), *totals, steps.loss.values(), strict=True)
    return [CurvePoint(step=step, tokens=tokens, seconds=seconds, loss=loss) for step, tokens, seconds, loss in rows]


def _evaluations(run: RunState, points: Sequence[CurvePoint]) -> list[CurvePoint]:
    at = {point.step: point for point in points}
    start = CurvePoint(step=0, tokens=0, seconds=0.0, loss=0.0)
    found = zip(run.evaluations.step.values(), run.evaluations.loss.values(), strict=True)
    return [at.get(step, start).model_copy(update={"loss": loss}) for step, loss in found if step == 0 or step in at]


def _speed(run: RunState) -> float | None:
    """Compute tokens per second over the steps without each engine's warm-up; None where no step remains."""
    steps = run.steps
    cold = {begin + number for begin in run.begins for number in range(1, WARM_UP_STEPS + 1)}
    rows = list(zip(steps.step.values(), steps.tokens.values(), steps.step_s.values(), strict=True))
    counted = [row for row in rows if row[0] not in cold] or rows
    seconds = sum(step_s for _, _, step_s in counted)
    return sum(tokens for _, tokens, _ in counted) / seconds if seconds > 0 else None


def _thinned(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Reduce to a limited number of points, each the median loss of equally many steps."""
    size = max(1, math.ceil(len(points) / _MOST_POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [group[-1].model_copy(update={"loss": _median([point.loss for point in group])}) for group in groups]


def _course(steps: StepHistory, points: Sequence[CurvePoint], joules: Sequence[float | None]) -> list[CourseStretch]:
    events = event_places(steps.loss.values(), steps.grad_norm.values())
    tokens, step_s, held = steps.tokens.values(), steps.step_s.values(), steps.held_bytes.values()
    size = max(1, math.ceil(len(steps) / _MOST_STRETCHES))
    found, most = list[CourseStretch](), 0
    for first in range(0, len(steps), size):
        last = min(first + size, len(steps)) - 1
        these = slice(first, last + 1)
        seconds = sum(step_s[these])
        most = max(most, *held[these])
        found.append(
            CourseStretch(
                step=points[last].step,
                tokens=points[last].tokens,
                seconds=points[last].seconds,
                tokens_per_s=sum(tokens[these]) / seconds if seconds > 0 else None,
                memory_bytes=most or None,
                joules=joules[last],
                events=bisect_right(events, last),
            )
        )
    return found


def _median(losses: Sequence[float]) -> float:
    finite = [loss for loss in losses if math.isfinite(loss)]
    return statistics.median(finite) if finite else losses[-1]


def _engine(run: RunState, card: RunCard | None) -> str:
    names = list(dict.fromkeys(start.engine for start in run.starts))
    if card is None:
        return " and ".join(names)
    facts = card.circumstances
    products = "" if facts.products == "16" else f"{facts.products} products"
    parts = " and ".join(names), facts.layout, facts.weights, products, facts.memory_plan
    return ", ".join(part for part in parts if part)


def _conditions(spec: RunSpec, card: RunCard | None, run: RunState, *, whole: bool) -> RunConditions:
    """Read a run's conditions; of one that broke off, only those that do not depend on its end."""
    known: dict[str, object] = {}
    if card:
        facts = card.circumstances
        weights = sorted(file.sha256 or "" for file in card.base.files if file.is_weights)
        evaluated = ", ".join(map(str, sorted(set(run.evaluations.tokens.values()))))
        known = {
            "data": card.data.tokens_sha256,
            "held_out": f"{card.data.held_out_rows} rows, {evaluated} learned tokens evaluated",
            "precision": facts.precision,
            "device": f"{facts.device}, {memory_size(facts.memory_bytes)}, {facts.threads} threads",
            "base": _digest(weights) if all(weights) else "",
            "versions": facts.versions,
        }
    if whole:
        tokens = run.steps.tokens.values()
        known |= {
            "order": _digest(list(zip(tokens, run.steps.supervised_tokens.values(), strict=True))),
            "schedule": _digest([f"{rate / spec.rate:.5g}" for rate in run.steps.learning_rate.values()]),
            "steps": f"{len(tokens):,} steps, {sum(tokens):,} tokens",
        }
    return RunConditions.model_validate(known)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
