"""List the runs as windows show them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.protocol import RunSummary
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.jobs.export_job import read_export_job
from burnish_engine.runs.store import StoredRun, list_runs, summarize


def overview(further: Sequence[str] = ()) -> list[RunSummary]:
    """List all runs under the user's runs folder, newest first.

    Args:
        further: folders of runs elsewhere; those that are no run folder (any more) are omitted.
    """
    waiting = {entry.run: lease.holder_of(entry.device) or "" for entry in lease.queue()}
    return [
        RunSummary(
            folder=str(summary.paths.root),
            state=summary.state,
            standing=summary.status,
            model=_model(summary.paths),
            waits_for=waiting.get(summary.paths.root, "") if summary.status == "queued" else "",
            export=read_export_job(summary.paths),
        )
        for summary in _with_further(list_runs(), further)
    ]


def _with_further(known: list[StoredRun], further: Sequence[str]) -> list[StoredRun]:
    folders = {summary.paths.root for summary in known}
    found = list(known)
    for folder in further:
        paths = RunPaths(Path(folder).absolute())
        if paths.root not in folders and paths.state.is_file():
            with suppress(UsageError):
                found.append(summarize(paths))
    return sorted(found, key=lambda summary: summary.state.created, reverse=True)


def _model(paths: RunPaths) -> str:
    with suppress(OSError):
        return _model_in(paths.recipe, paths.recipe.stat().st_mtime_ns)
    return ""


@functools.lru_cache(maxsize=1024)
def _model_in(recipe: Path, _changed_ns: int) -> str:
    """Read the name of a recipe's model, cached: windows ask every second, and a frozen recipe does not change."""
    with suppress(ValueError, OSError):  # damaged: the run is still listed
        model = tomllib.loads(recipe.read_text(encoding="utf-8")).get("model", {})
        return str(model.get("path", "embedded")) if isinstance(model, dict) else ""
    return ""
