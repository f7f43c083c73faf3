"""Choose the engine of a run, and load it at its start or at a checkpoint.

The fast engine trains wherever it supports model and adapter, else transformers and PEFT do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from burnish_engine.advise.facts.engine_choice import (
    check_optimizer,
    check_plain_engine,
    check_stored,
    plain_note,
    refuse_sharing,
    unused_pins_note,
)
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.run.card import CardRollback
from burnish_engine.models.device.device import lease_name
from burnish_engine.models.generation.load_fast import device_problem
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_support import why_not
from burnish_engine.train.guard.record import GuardRecord, read_record
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.announce import data_ready, report_notes, run_started
from burnish_engine.train.lifecycle.progress import StepRecorder, Tally
from burnish_engine.train.lifecycle.run_setup import RunSetup
from burnish_engine.train.parallel.leading_engine import LeadingEngine
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.parallel.sharded_engine import LeadingShardedEngine, refuse_sharded
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.recovery.recovery import RecoveringEngine, load_recovering
from burnish_engine.train.recovery.rollback import current_recipe


@dataclass(frozen=True)
class EngineLoader:
    """Loads the engine of a run, and announces from where the run continues.

    Attributes:
        setup: settings and inputs of the run.
        recorder: recorder of events and state.
        tally: counts of the run; they go to where the engine is.
        progress: recorder of steps, which follows the engine.
        ranks: other ranks that share the steps; None: this process makes them alone.
    """

    setup: RunSetup
    recorder: Recorder
    tally: Tally
    progress: StepRecorder
    ranks: Ranks | None = None

    def load(
        self, checkpoint: Path | None, plan: str, rollback: CardRollback | None = None
    ) -> tuple[RecoveringEngine, GuardRecord]:
        """Load the engine as it was at a checkpoint.

        Args:
            checkpoint: checkpoint to continue from; None for the start of the run.
            plan: memory plan, as text.
            rollback: reason for going back to the checkpoint; None: it is none, or the checkpoint knows of one.

        Returns:
            The engine, and the state of guard, early stopping and rollback at that checkpoint.

        Raises:
            UsageError: Data or recipe differ from the checkpoint's.
        """
        self.recorder.phase("weights")
        position = checkpoints.read_position(checkpoint) if checkpoint else None
        record = read_record(position)
        record.rollback = rollback or record.rollback
        trained = checkpoints.trained_folder(checkpoint) if checkpoint else self.setup.inputs.start
        spec = self._spec(position, record.rollback)
        engine = load_recovering(
            lambda chosen, weights: make_engine(replace(spec, plan=chosen, adapter=weights), self.ranks, self._replica),
            plan,
            self.setup.device,
            self._report_smaller_plan,
            trained,
        )
        self.progress.follow(lambda: engine.facts)
        report_notes(engine, self.recorder)
        self.tally.go_to(None)
        if checkpoint and position:
            self._restore(engine, checkpoint, position)
        self._announce(engine, position)
        return engine, record

    def _spec(self, position: checkpoints.Position | None, rollback: CardRollback | None) -> EngineSpec:
        setup, inputs = self.setup, self.setup.inputs
        return EngineSpec(
            source=inputs.source,
            recipe=current_recipe(setup.recipe, rollback),
            stream=inputs.stream,
            tokenizer=inputs.tokenizer,
            precision=setup.precision,
            device=setup.device,
            name=position.engine if position else None,
            layout=position.layout if position else None,
            products=setup.products.products,
            progress=lambda done, total: self.recorder.progress(done, total, "layers"),
            exchange_timed=self.recorder.emit,
        )

    @property
    def _replica(self) -> Message:
        """Order from which other ranks load their replicas; the engine adds to it."""
        setup = self.setup
        return {
            "run": str(setup.paths.root.absolute()),
            "threads": setup.threads,
            "precision": setup.precision,
            "products": setup.products.products,
            "dataset_hash": setup.inputs.data.dataset_hash,
        }

    def _restore(self, engine: Engine, checkpoint: Path, position: checkpoints.Position) -> None:
        setup = self.setup
        checkpoints.refuse_changes(position, setup.inputs.data.dataset_hash, setup.recipe_hash, setup.paths.recipe)
        if position.device != setup.device.type:
            self.recorder.warn(
                "device",
                f"This run began on {position.device} and continues on {setup.device.type}: losses will differ in "
                "their last digits from an uninterrupted run's.",
            )
        checkpoints.restore_training(checkpoint, engine, setup.device)
        self.tally.go_to(position)

    def _announce(self, engine: Engine, position: checkpoints.Position | None) -> None:
        setup, budget = self.setup, self.setup.inputs.budget
        self.recorder.emit(run_started(setup, engine.facts.name, position))
        self.recorder.emit(data_ready(setup.inputs.data, budget))
        self.progress.tell_plan()
        self.recorder.update(step=self.tally.step, total_steps=budget.steps, device=lease_name(setup.device))

    def _report_smaller_plan(self, message: str) -> None:
        self.setup.measure.not_as_planned()
        self.recorder.warn("smaller_plan", message)


def make_engine(spec: EngineSpec, ranks: Ranks | None = None, replica: Message | None = None) -> Engine:
    """Load the model into an engine.

    Args:
        spec: specification of the engine.
        ranks: other ranks that share the steps; None: this process makes them alone.
        replica: what their replicas are loaded from.

    Raises:
        UsageError: The recipe asks for something that its engine, named or left, does not support.
    """
    recipe = spec.recipe
    check_optimizer(recipe)
    if recipe.devices.strategy == "sharded":
        refuse_sharded(recipe, spec.device, spec.precision)
        if ranks:
            check_plain_engine(recipe, spec.precision, "", device_problem(spec.device))
            return LeadingShardedEngine(spec, ranks, replica or {})
    asked = spec.name or recipe.train.engine
    reason = "" if asked == "plain" else why_not(spec.source, recipe, spec.device)
    if reason and asked == "fast":
        remedy = 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.'
        raise UsageError(f"{reason}.", "Start a new run; the fast engine began this one." if spec.name else remedy)
    in_order = recipe.devices.shares and recipe.devices.exact
    if asked != "plain" and not reason:
        if ranks:
            return LeadingEngine(spec, ranks, replica or {})
        exchange = RankExchange(0, 1, exact=True) if in_order else None
        return FastEngine(replace(spec, exchange=exchange))
    if ranks or in_order:
        refuse_sharing(recipe, reason)
    check_plain_engine(recipe, spec.precision, reason, device_problem(spec.device))
    check_stored(spec.source.config)
    plain = PlainEngine(spec)
    notes = [plain_note("" if spec.name else reason), unused_pins_note(recipe)]
    plain.notes[:0] = [note for note in notes if note]
    return plain
