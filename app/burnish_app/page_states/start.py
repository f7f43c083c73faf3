"""What the page Start shows of earlier runs. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import PageState, seen
from burnish_engine.contract.serve.replies import RunSummary

_RECENT = 5


@dataclass(frozen=True, kw_only=True)
class StartState(PageState):
    """What the page Start shows.

    Attributes:
        lines: the newest runs, newest first.
    """

    lines: tuple[RunSummary, ...] = ()


def page_state(runs: Sequence[RunSummary]) -> StartState:
    """Say what is shown of all runs, newest first: the newest of them, or how it goes where there is none."""
    return StartState(
        subtitle=tr("Train a language model on your own data and take the result with you as one file."),
        parts=seen(recent=runs, steps=not runs),
        lines=tuple(runs[:_RECENT]),
    )
