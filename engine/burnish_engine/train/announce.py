"""What a run says of itself when it begins or goes on."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import torch

from burnish_engine.contract.events import DataReady, RunStarted
from burnish_engine.contract.version import burnish_version
from burnish_engine.data.documents import lengths_of, supervised_of
from burnish_engine.data.prepare import Prepared
from burnish_engine.models.device import describe
from burnish_engine.runs.process import own_identity
from burnish_engine.train.checkpoint import Position
from burnish_engine.train.stream import Budget


def run_started(
    run: str, device: torch.device, precision: str, engine: str, position: Position | None, total_steps: int
) -> RunStarted:
    """This process took the run over.

    Args:
        run: Name of its folder.
        device: Where it trains.
        precision: Of the base weights.
        engine: Which one trains.
        position: Of the checkpoint that it goes on from; None at the start.
        total_steps: Of the run.
    """
    pid, created = own_identity()
    return RunStarted(
        run=run,
        pid=pid,
        process_created=created,
        device=describe(device),
        precision=precision,
        engine=engine,
        resumed_from_step=position.step if position else None,
        total_steps=total_steps,
        versions=_versions(),
    )


def data_ready(data: Prepared, budget: Budget) -> DataReady:
    """What the run learns from."""
    facts = data.facts
    return DataReady(
        train_rows=facts.train_rows,
        validation_rows=facts.validation_rows,
        dropped_rows=sum(facts.dropped.values()),
        truncated_rows=facts.truncated_rows,
        train_tokens=int(lengths_of(data.train).sum()),
        supervised_tokens=int(supervised_of(data.train).sum()),
        micro_batches_per_epoch=budget.per_epoch,
        fill=facts.fill,
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "burnish": burnish_version()}
    for package in ("torch", "transformers", "peft"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
