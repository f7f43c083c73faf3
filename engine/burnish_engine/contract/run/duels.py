"""Types of duels as windows show them: the plan, how far one is, and its verdicts. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.number import Moment, Number
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.record import Facts

DuelStatus = Literal["planned", "running", "stopped", "finished"]
DuelPhase = Literal["grid", "seeds", "second look"]
DifferenceKind = Literal["compared", "unfair", "decided"]
VerdictKind = Literal["winner", "not distinguishable", "equal", "not measured"]
VerdictForm = Literal["nats", "share", "count", "points"]
DuelJudge = Literal["held_out_loss", "pair_error"]
"""Measure that decides a duel. pair_error: share of held-out pairs whose rejected reply is the likelier one; it decides
where sides learn by different objectives, each with a loss of its own."""
JUDGES: tuple[DuelJudge, ...] = ("held_out_loss", "pair_error")


class DuelSideFacts(Facts):
    """A compared recipe."""

    letter: str
    name: str
    rate: float = Field(description="Its learning rate.")
    run_s: float | None = Field(default=None, description="Predicted training time of one run; None: unknown.")


class DuelDifferenceFacts(Facts):
    """A key in which the recipes differ."""

    key: str
    values: list[str] = Field(description="Value of each side, shortened.")
    kind: DifferenceKind
    why: str = ""


class DuelRun(Facts):
    """A run of a duel: the one that is running, or one that has ended. None: not measured."""

    id: str
    folder: str
    side: int = Field(description="Index of the side.")
    phase: DuelPhase = Field(description="grid: find the side's rate; seeds: compare; second look: another rate.")
    seed: int
    rate: float
    ended: Literal["", "finished", "diverged"] = Field(default="", description="Empty: it continues.")
    step: int = 0
    total_steps: int = 0
    held_out_loss: Number | None = None
    preferred: Number | None = Field(
        default=None,
        description="Share of held-out pairs whose chosen reply is the likelier one; None: no pairs.",
    )
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    seconds: float = Field(default=0.0, description="Time spent in steps.")


class DuelVerdictFacts(Facts):
    """A verdict on a pair of sides in one measure. None: there is no interval."""

    measure: str
    title: str
    form: VerdictForm
    sides: tuple[int, int]
    names: tuple[str, str]
    kind: VerdictKind
    winner: int | None = None
    difference: Number | None = Field(default=None, description="The first side less the second.")
    low: Number | None = None
    high: Number | None = None
    level: float
    pairs: list[float] = Field(default=[], description="Difference of each pair of runs, where measured.")
    text: str


class DuelCheck(Facts):
    """Whether a condition was the same for all runs."""

    what: str
    verdict: Literal["same", "differs", "unknown"] = Field(
        description="unknown: a card is missing, or the condition could not be compared."
    )
    detail: str = Field(default="", description="What differs, or what is the same.")


class DuelFacts(Facts):
    """A duel: planned, running, stopped or finished."""

    folder: str = Field(default="", description="Empty: only planned.")
    created: Moment = Field(description="Seconds since the epoch.")
    status: DuelStatus
    judge: DuelJudge = Field(default="held_out_loss", description="Measure that decides it.")
    tried: list[SweepSetting] = Field(
        default=[], description="Factors, whose combinations the sides are; empty: sides are recipes."
    )
    sides: list[DuelSideFacts]
    differences: list[DuelDifferenceFacts]
    factors: list[float]
    seeds: int
    runs: tuple[int, int] = Field(description="Smallest and largest number of runs.")
    seconds: tuple[float, float] | None = Field(description="The same as predicted training time; None: unknown.")
    problems: list[str] = Field(default=[], description="Why a side's runs would not fit; only of a plan.")
    made: list[DuelRun] = Field(default=[])
    current: DuelRun | None = None
    headline: str = Field(default="", description="The verdict by the judge, in a sentence; empty before the end.")
    verdicts: list[DuelVerdictFacts] = Field(default=[])
    checks: list[DuelCheck] = Field(default=[])
    caution: str = Field(default="", description="What so many pairs can and cannot show.")
    message: str = Field(default="", description="Why it stopped.")
    report: str = Field(default="", description="Path of the report page; empty: there is none yet.")
