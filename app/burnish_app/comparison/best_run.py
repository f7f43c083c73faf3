"""Differences of runs' held-out losses to the best one that was measured on the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from burnish_app.look.language import tr
from burnish_engine.contract.serve.replies import RunSummary


def deltas_to_best(runs: Iterable[RunSummary]) -> dict[str, float]:
    """Return each run's held-out loss less the lowest of those measured on the same held-out rows, by folder.

    A run without a held-out loss is left out, and so is one that no other run can be compared with.

    Args:
        runs: summaries of the runs.
    """
    groups: dict[str, dict[str, float]] = {}
    for run in runs:
        loss = run.state.evaluation_loss
        if run.held_out and loss is not None and math.isfinite(loss):
            groups.setdefault(run.held_out, {})[run.folder] = loss
    found = {}
    for losses in groups.values():
        if len(losses) > 1:
            best = min(losses.values())
            found.update({folder: loss - best for folder, loss in losses.items()})
    return found


def delta_text(delta: float | None) -> str:
    """Format a difference to the best run; empty: there is nothing to compare with."""
    if delta is None:
        return ""
    return f"{delta:+.3f}" if delta > 0 else tr("best")
