"""Write a run's checkpoints, and delete those that nothing can go back to any more."""

from __future__ import annotations

import time
from dataclasses import dataclass

from burnish_engine.contract.run.card import CardRollback
from burnish_engine.contract.run.events import CheckpointSaved
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.guard.guard import Guard
from burnish_engine.train.guard.record import GuardRecord, read_record
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.early_stopping import EarlyStopping
from burnish_engine.train.lifecycle.progress import Tally
from burnish_engine.train.lifecycle.run_setup import RunSetup


@dataclass(frozen=True)
class CheckpointWriter:
    """Writes the checkpoints of a run.

    Attributes:
        setup: settings and inputs of the run.
        recorder: recorder that receives an event for each.
        tally: counts of the run; each checkpoint is noted in it.
        guard: guard of the run, whose state each checkpoint holds.
        early: early stopping of the run, whose state each checkpoint holds.
    """

    setup: RunSetup
    recorder: Recorder
    tally: Tally
    guard: Guard
    early: EarlyStopping

    def write(self, engine: Engine, rollback: CardRollback | None) -> None:
        """Write a checkpoint, then delete old ones. The results of all steps must have been collected.

        Args:
            engine: engine that trains.
            rollback: rollback of the run; None where there was none.

        Raises:
            NoSpaceError: The checkpoint could not be written.
        """
        began = time.perf_counter()
        folder, step = self.setup.paths.checkpoints, self.tally.step
        position = self._position(engine, rollback)
        self.recorder.sync()
        written = checkpoints.save_checkpoint(folder, engine, position, self.setup.device)
        self.tally.saved(step)
        if not self.guard.watch.suspects(step):  # else the run may have to go back to an older one
            checkpoints.prune_checkpoints(folder, self.setup.recipe.train.keep_checkpoints)
        if self.early.is_on:
            self.early.prune(read_record(kept).best.step for kept in checkpoints.positions(folder))
        path = written.relative_to(self.setup.paths.root).as_posix()
        self.recorder.emit(CheckpointSaved(step=step, path=path, seconds=time.perf_counter() - began))

    def is_due(self) -> bool:
        """Whether the run shall be saved after the present step: by its number, or because the last save is old."""
        train, tally = self.setup.recipe.train, self.tally
        by_steps = train.checkpoint_every and tally.step % train.checkpoint_every == 0
        minutes = train.checkpoint_minutes
        return bool(by_steps or (minutes and time.monotonic() - tally.saved_at >= 60 * minutes))

    def _position(self, engine: Engine, rollback: CardRollback | None) -> checkpoints.Position:
        setup, tally = self.setup, self.tally
        record = self.guard.record_state(GuardRecord(best=self.early.best, rollback=rollback))
        return checkpoints.Position(
            step=tally.step,
            micro_batches=tally.micro_batches,
            tokens=tally.tokens,
            dataset_hash=setup.inputs.data.dataset_hash,
            recipe_hash=setup.recipe_hash,
            threads=setup.threads,
            precision=setup.precision,
            layout=engine.facts.layout,
            device=setup.device.type,
            engine=engine.facts.name,
            guard=record.model_dump_json(),
            products=setup.products.products,
        )
