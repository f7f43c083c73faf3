"""List the runs as windows show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.votes import VoteCount, count_votes, read_votes
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.notes import RunNotes, read_notes
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.runs.compare.labels import run_labels
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.jobs.export_job import read_export_job
from burnish_engine.runs.store import StoredRun, list_runs, summarize


def overview(further: Sequence[str] = ()) -> list[RunSummary]:
    """List all runs under the user's runs folder, newest first.

    Args:
        further: folders of runs elsewhere; those that are no run folder (any more) are omitted.
    """
    waiting = {entry.run: lease.holder_of(entry.device) or "" for entry in lease.queue()}
    return [_summary(summary, waiting) for summary in _with_further(list_runs(), further)]


def _summary(run: StoredRun, waiting: Mapping[Path, str]) -> RunSummary:
    labels = run_labels(run.paths)
    return RunSummary(
        folder=str(run.paths.root),
        state=run.state,
        standing=run.status,
        model=labels.model,
        data=labels.data,
        held_out=labels.held_out,
        objective=labels.objective,
        notes=_notes(run.paths),
        votes=_votes(run.paths),
        waits_for=waiting.get(run.paths.root, "") if run.status == "queued" else "",
        export=read_export_job(run.paths),
        process_end=run.process_end,
    )


def _notes(paths: RunPaths) -> RunNotes:
    """Read a run's notes; damaged ones are no reason not to list it."""
    with suppress(UsageError):
        return read_notes(paths)
    return RunNotes()


def _votes(paths: RunPaths) -> VoteCount:
    """Count a run's votes; damaged ones are no reason not to list it."""
    with suppress(UsageError):
        return count_votes(read_votes(paths))
    return VoteCount()


def _with_further(known: list[StoredRun], further: Sequence[str]) -> list[StoredRun]:
    folders = {summary.paths.root for summary in known}
    found = list(known)
    for folder in further:
        paths = RunPaths(Path(folder).absolute())
        if paths.root not in folders and is_file(paths.state):
            with suppress(UsageError):
                found.append(summarize(paths))
    return sorted(found, key=lambda summary: summary.state.created, reverse=True)
