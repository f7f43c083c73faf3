"""Computes the state of the page Runs: count of the runs, and actions for those that are selected. No Qt."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.wording.numbers import plural
from burnish_app.wording.run_text import ACTIVE, LEAVE_QUEUE, RUN_ACTION_BUTTONS, RUN_ACTIONS
from burnish_engine.contract.serve.replies import RunSummary

_DELETABLE = ("created", "queued", "finished", "stopped", "suspended", "failed", "interrupted")


def page_state(runs: Sequence[RunSummary], selection: Sequence[RunSummary], most_compared: int) -> PageState:
    """Return the state of the page for the known runs and the selected ones.

    Args:
        runs: all runs.
        selection: selected ones.
        most_compared: how many can be compared at once.
    """
    alive = sum(run.standing in ACTIVE for run in runs)
    known = plural(len(runs), "run") if runs else ""
    return PageState(
        status="busy" if alive else "done" if runs else "empty",
        subtitle=tr("{runs}, {alive} running").format(runs=known, alive=alive) if alive else known,
        parts=seen(nothing=not runs, card=runs, details=selection),
        primary=_primary(len(selection), most_compared),
        buttons=_buttons(selection),
    )


def _primary(count: int, most: int) -> ButtonState | None:
    """Open one run, or compare several."""
    if not count:
        return None
    if count == 1:
        return ButtonState(text=tr("Open"), icon="open", hint="", does="open")
    hint = tr("At most {n} at once.").format(n=most) if count > most else ""
    text = tr("Compare {n} runs").format(n=count)
    return ButtonState(text=text, icon="compare", hint=hint, does="compare", is_enabled=count <= most)


def _buttons(selection: Sequence[RunSummary]) -> dict[str, ButtonState]:
    if not selection:
        return {}
    kept = any(run.standing not in _DELETABLE for run in selection)
    hint = tr("Stop it first.") if kept else tr("It can be undone for 7 days.")
    shown = {"delete": ButtonState(hint=hint, is_enabled=not kept)}
    if len(selection) == 2:
        shown["duel"] = ButtonState()
    if len(selection) == 1:
        status = selection[0].standing
        shown |= {"reveal": ButtonState(), "duplicate": ButtonState()}
        if selection[0].state.step:
            shown["report"] = ButtonState(hint=tr("Curve, replies and card as a page to read, keep or print"))
        stop = LEAVE_QUEUE if status == "queued" else RUN_ACTION_BUTTONS["stop"][0]
        possible = {"stop": ButtonState(text=stop), "resume": ButtonState()}
        shown |= {name: button for name, button in possible.items() if name in RUN_ACTIONS.get(status, ())}
    return shown
