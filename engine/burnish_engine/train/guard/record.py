"""What the guard has to know of a run's past to go on exactly, as a checkpoint keeps it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.card import CardRollback
from burnish_engine.train.checkpoint import Position
from burnish_engine.train.early_stopping import BestSoFar
from burnish_engine.train.guard.findings import Check
from burnish_engine.train.guard.watch import WatchState


class ToldFinding(BaseModel):
    """A finding as it is kept."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    check: Check
    sentence: str
    cause: str
    remedy: str
    stops: bool


class GuardRecord(BaseModel):
    """Content of `Position.guard`."""

    model_config = ConfigDict(extra="ignore")

    watch: WatchState = WatchState()
    told: ToldFinding | None = None
    passed: list[Check] = []
    best: BestSoFar = BestSoFar()
    rollback: CardRollback | None = None


def read_record(position: Position | None) -> GuardRecord:
    """Of a checkpoint; empty at the start, and of a checkpoint from before there was a guard."""
    if position is None or not position.guard:
        return GuardRecord()
    return GuardRecord.model_validate_json(position.guard)
