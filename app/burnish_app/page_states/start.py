"""Computes the state of the page Start: recent runs, or the steps where there are none. No Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import PageState, seen


def page_state(*, has_runs: bool) -> PageState:
    """Return the state of the page: it shows the newest runs, or the steps where there is no run."""
    subtitle = tr("Train a language model on your own data and take the result with you as one file.")
    return PageState(subtitle=subtitle, parts=seen(recent=has_runs, steps=not has_runs))
