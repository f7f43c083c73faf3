"""Computes the state of the page Start: the newest runs, or the steps where there are none. No Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import PageState, seen


def page_state(count: int) -> PageState:
    """Return the state of the page: it shows the newest runs, or the steps where there is no run.

    Args:
        count: number of runs; the newest stands alone, further ones in a list.
    """
    subtitle = tr("Train a language model on your own data and take the result with you as one file.")
    return PageState(subtitle=subtitle, parts=seen(goes_on=count, recent=count > 1, steps=not count))
