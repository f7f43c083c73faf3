"""Computes the state of the page Train: status, parts and actions of a run. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.wording.activity import run_title
from burnish_app.wording.causes import CureAction
from burnish_app.wording.numbers import first_sentence
from burnish_app.wording.run_text import (
    LEAVE_QUEUE,
    RUN_ACTION_BUTTONS,
    RUN_STATUS_TEXT,
    RunDescription,
    describe_run,
    run_line,
)
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.serve.replies import RunSummary

_BEGINNING = ("created", "queued", "running")
_AT_REST = ("failed", "interrupted", "queued")  # a card says more than the state beside the name
_CURE_ICONS: dict[CureAction, str] = {"folder": "folder"}


@dataclass(frozen=True, kw_only=True)
class TrainState(PageState):
    """The state of the page Train.

    Attributes:
        description: status of the run in words; None: there is no run.
        can_go_on: whether nothing has to come before the run can continue.
        problem: what went wrong and what to do about it; empty: the run did not fail.
    """

    description: RunDescription | None = None
    can_go_on: bool = True
    problem: tuple[str, str] = ("", "")


def page_state(
    summary: RunSummary | None, events: RunState, cure: tuple[str, CureAction] | None, *, is_asked: bool
) -> TrainState:
    """Return the state of the page for a run.

    Args:
        summary: summary of the run; None: there is none.
        events: state folded from the run's events so far.
        cure: what has to come before the run can continue, as `needed_first` says.
        is_asked: whether a command to the run is not answered yet.
    """
    if summary is None:
        return TrainState(parts=seen(nothing=True), fills=True)
    status, described = summary.standing, describe_run(summary, events)
    has_steps = len(events.steps) > 0
    begins = not has_steps and status in _BEGINNING
    return TrainState(
        status=described.status,
        name=run_title(summary),
        pill=(RUN_STATUS_TEXT[status] if status in _AT_REST else described.headline, described.tone),
        subtitle=run_line(summary, events),
        fills=begins,
        parts=seen(figures=True, log=True, charts=has_steps, beginning=begins),
        primary=_primary(described, status, cure, is_asked=is_asked),
        buttons=_buttons(described, summary, cure, is_asked=is_asked),
        description=described,
        can_go_on=cure is None,
        problem=first_sentence(described.problem) if status == "failed" else ("", ""),
    )


def _primary(
    described: RunDescription, status: str, cure: tuple[str, CureAction] | None, *, is_asked: bool
) -> ButtonState | None:
    """Resume the run, do first what it needs for that, or lead to the page Try it."""
    if "resume" not in described.actions and status != "finished":
        return None
    if cure is not None:
        text, does = cure
        return ButtonState(text=text, icon=_CURE_ICONS.get(does, "next"), does=does, is_enabled=not is_asked)
    if status == "finished":
        return ButtonState(text=tr("Try it"), icon="chat", does="try_out", is_enabled=not is_asked)
    return ButtonState(text=tr("Resume"), icon="play", does="resume", is_enabled=not is_asked)


def _buttons(
    described: RunDescription, summary: RunSummary, cure: tuple[str, CureAction] | None, *, is_asked: bool
) -> dict[str, ButtonState]:
    status = summary.standing
    stop = LEAVE_QUEUE if status == "queued" else RUN_ACTION_BUTTONS["stop"][0]
    shown: dict[str, ButtonState] = {
        action: ButtonState(text=stop if action == "stop" else "", is_enabled=not is_asked)
        for action in described.actions
        if action != "resume" or cure is not None  # else the primary button does it
    }
    if status in ("failed", "interrupted", "not responding"):
        shown["copy"] = ButtonState()
    if status == "queued" and summary.waits_for:
        shown["holder"] = ButtonState()
    return shown
