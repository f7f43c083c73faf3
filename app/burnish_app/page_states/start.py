"""Computes what the page Start shows of earlier runs. No Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import PageState, seen


def page_state(*, has_runs: bool) -> PageState:
    """Say what is shown: the newest runs, or how it goes where there is none."""
    subtitle = tr("Train a language model on your own data and take the result with you as one file.")
    return PageState(subtitle=subtitle, parts=seen(recent=has_runs, steps=not has_runs))
