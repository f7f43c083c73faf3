"""The events that a run emits when it begins or resumes, and the warnings of its engine."""

from __future__ import annotations

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import DataReady, RunStarted
from burnish_engine.data.prepare import PreparedDataset
from burnish_engine.data.tokens.documents import lengths_of, supervised_tokens_of
from burnish_engine.models.device.device import describe
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.base.stream import Budget
from burnish_engine.train.lifecycle.card_facts import versions
from burnish_engine.train.lifecycle.checkpoint import Position
from burnish_engine.train.lifecycle.run_setup import RunSetup

_PACKAGES = ("python", "burnish", "torch", "transformers", "peft")


def run_started(setup: RunSetup, engine: str, position: Position | None) -> RunStarted:
    """Build the event that says that this process carries the run out.

    Args:
        setup: setup of the run.
        engine: name of the engine.
        position: position of the checkpoint that the run resumes from; None at the start.
    """
    (pid, created), known = own_identity(), versions()
    return RunStarted(
        run=setup.paths.root.name,
        pid=pid,
        process_created=created,
        device=describe(setup.device),
        precision=setup.precision,
        engine=engine,
        products=setup.products.products,
        products_reason=setup.products.reason,
        resumed_from_step=position.step if position else None,
        total_steps=setup.inputs.budget.steps,
        versions={name: known[name] for name in _PACKAGES if name in known},
    )


def data_ready(data: PreparedDataset, budget: Budget) -> DataReady:
    """Build the event that sums up the training data."""
    facts = data.facts
    return DataReady(
        train_rows=facts.train_rows,
        validation_rows=facts.validation_rows,
        dropped_rows=sum(facts.dropped.values()),
        truncated_rows=facts.truncated_rows,
        train_tokens=int(lengths_of(data.train).sum()),
        supervised_tokens=int(supervised_tokens_of(data.train).sum()),
        micro_batches_per_epoch=budget.per_epoch,
        fill=facts.fill,
    )


def report_notes(engine: Engine, recorder: Recorder) -> None:
    """Emit the engine's notes as warnings, and remove them."""
    while engine.notes:
        recorder.warn("engine", engine.notes.pop(0))


def warn_of_idle_ranks(recipe: Recipe, ranks: int, recorder: Recorder) -> None:
    """Warn where a step has fewer passes than there are ranks, or cannot be shared out evenly."""
    passes = recipe.train.accumulation
    if passes % ranks:
        has = "1 pass" if passes == 1 else f"{passes} passes"
        work = "1 of them works" if passes == 1 else f"{passes} of them work"
        some = f"only {work}" if passes < ranks else "some of them wait for the others"
        recorder.warn(
            "idle_gpus",
            f"A step has {has} (train.accumulation) for {ranks} GPUs, so {some}. A new run with "
            f"train.accumulation = {-(-passes // ranks) * ranks} uses all of them.",
        )
