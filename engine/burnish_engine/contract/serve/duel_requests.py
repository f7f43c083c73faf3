"""Requests about duels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.serve.protocol_line import ProtocolLine, ProtocolRequest


class DuelSideRequest(ProtocolLine):
    """A side of a duel."""

    name: str = Field(min_length=1, max_length=200)
    recipe: str = Field(description="TOML.")


class _DuelRequest(ProtocolRequest):
    sides: list[DuelSideRequest] = Field(min_length=1, description="Two or more; with `tried` one, which they change.")
    tried: list[SweepSetting] = Field(
        default=[], description="Factors with two values each: the sides are all combinations."
    )
    seeds: int = Field(default=3, ge=3, le=100, description="Runs of each side at its best learning rate.")
    factors: list[float] = Field(default=[0.3, 1.0, 3.0], description="Learning rates, as multiples of its own.")
    anyway: bool = Field(default=False, description="Compare although the conditions differ.")


class PlanDuelRequest(_DuelRequest):
    """Say what a duel would compare and take; progress in rows of data. Result: `duels`, the plan alone."""

    method: Literal["plan_duel"] = "plan_duel"


class StartDuelRequest(_DuelRequest):
    """Start a duel in a process of its own that outlives server and client. Result: `run`, the duel's folder."""

    method: Literal["start_duel"] = "start_duel"


class DuelsRequest(ProtocolRequest):
    """List the duels, newest first, or describe one. Result: `duels`."""

    method: Literal["duels"] = "duels"
    folder: str = Field(default="", description="Empty: all.")


class StopDuelRequest(ProtocolRequest):
    """Ask a duel to save the run that is running, and to stop. Result: `done`."""

    method: Literal["stop_duel"] = "stop_duel"
    folder: str


class ResumeDuelRequest(ProtocolRequest):
    """Continue with a duel that was stopped. Result: `run`, the duel's folder."""

    method: Literal["resume_duel"] = "resume_duel"
    folder: str


RequestsOnDuels = PlanDuelRequest | StartDuelRequest | DuelsRequest | StopDuelRequest | ResumeDuelRequest
