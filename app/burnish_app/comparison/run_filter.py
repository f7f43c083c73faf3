"""Finds runs by typed words."""

from __future__ import annotations

from burnish_app.wording.run_text import RUN_STATUS_TEXT
from burnish_engine.contract.serve.replies import RunSummary


def matches(run: RunSummary, text: str) -> bool:
    """Whether a run has every word of a text in its name, folder, status, model, data, tags or notes.

    Args:
        run: summary of the run.
        text: words separated by spaces; upper and lower case are the same. Empty: every run matches.
    """
    notes = run.notes
    places = [
        run.state.name,
        run.state.run,
        RUN_STATUS_TEXT[run.standing],
        run.model,
        run.data,
        *notes.tags,
        notes.text,
    ]
    found = "\n".join(places).casefold()
    return all(word in found for word in text.casefold().split())
