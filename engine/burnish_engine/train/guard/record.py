"""The guard's state in a checkpoint, with which a resumed run continues exactly."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.run.card import CardRollback
from burnish_engine.contract.wording.tables import Check
from burnish_engine.train.guard.findings import GuardFinding
from burnish_engine.train.guard.preference_watch import PreferenceState
from burnish_engine.train.guard.reward_watch import RewardState
from burnish_engine.train.guard.watch import WatchState
from burnish_engine.train.lifecycle.checkpoint import Position
from burnish_engine.train.lifecycle.early_stopping import BestSoFar


class GuardRecord(BaseModel):
    """Content of `Position.guard`: the state of guard, early stopping and rollback."""

    model_config = ConfigDict(extra="ignore")

    watch: WatchState = WatchState()
    preference: PreferenceState = PreferenceState()
    reward: RewardState = RewardState()
    told: GuardFinding | None = None
    passed: list[Check] = []
    best: BestSoFar = BestSoFar()
    rollback: CardRollback | None = None


def read_record(position: Position | None) -> GuardRecord:
    """Read the guard's record of a checkpoint; empty at the start of a run."""
    return GuardRecord() if position is None else GuardRecord.model_validate_json(position.guard)
