"""Titles of runs that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_app.wording.activity import run_title
from burnish_engine.contract.serve.replies import RunSummary


def distinct_titles(runs: Sequence[RunSummary]) -> list[str]:
    """Return the name of each run, with that of its folder where several share a name.

    Args:
        runs: summaries of the runs.
    """
    names = [run_title(run) for run in runs]
    return [
        f"{name} ({run.state.run})" if names.count(name) > 1 and name != run.state.run else name
        for name, run in zip(names, runs, strict=True)
    ]
