"""Computes the state of the page Settings: the choices that the preferences make. No Qt."""

from __future__ import annotations

from burnish_app.page_states.page_state import PageState


def page_state(*, mode: str, motion: str, asks_on_close: bool, notifies: bool) -> PageState:
    """Return the state of the page for preferences, named as in `Preferences`."""
    asking, notifying = ("yes" if is_on else "no" for is_on in (asks_on_close, notifies))
    return PageState(chosen={"mode": mode, "motion": motion, "asking": asking, "notifying": notifying})
