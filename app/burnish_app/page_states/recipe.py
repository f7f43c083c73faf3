"""Computes the state of the page Recipe: how far the recipe is from a run. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.recipe.plan_text import plan_line
from burnish_app.state.step_status import StepStatus
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.numbers import sentence_list
from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.place import HERE

_ATTENTION = tr("Something in the recipe needs attention.")


@dataclass(frozen=True, kw_only=True)
class RecipeFacts:
    """The distance of a recipe from a run, by what is there and what is missing.

    Attributes:
        is_valid: whether every value is valid.
        has_data: whether there is data to learn from.
        has_suggestion: whether a recipe was suggested.
        has_run: whether a run was started before.
        is_suggesting: whether a suggestion is awaited, which may change the recipe.
        is_shown: whether the page shows the recipe that would be started.
        is_starting: whether a run is being started.
        is_planning: whether another plan is awaited.
        is_toml: whether the recipe is shown as text.
        is_beside: whether there is room for the panel beside the settings.
        subject: model and data of the run.
        plan: plan of the recipe; None: it is not planned yet.
        where: place that the recipe trains at.
        place: machine that the plan is of; empty: this one.
        problems: dotted keys of invalid settings, as far as known; they may be scrolled out of view.
        change: what the last change did to the plan; empty: nothing, or it stands elsewhere.
    """

    is_valid: bool
    has_data: bool
    has_suggestion: bool
    has_run: bool
    is_suggesting: bool
    is_shown: bool
    is_starting: bool
    is_planning: bool = False
    is_toml: bool = False
    is_beside: bool = True
    subject: str = ""
    plan: RunPlan | None
    where: str
    place: str = ""
    problems: Sequence[str] = ()
    change: str = ""


def page_state(known: RecipeFacts) -> PageState:
    """Return the state of the page for a recipe."""
    keeps_note = known.is_valid and known.plan is None and known.is_planning
    return PageState(
        status=_status(known),
        subtitle=known.subject,
        note=None if keeps_note else _note(known),
        fills=known.is_toml,
        parts=seen(busy=known.is_suggesting),
        primary=_primary(known),
        buttons={"import": ButtonState(), "export": ButtonState()} if known.is_toml else {},
    )


def _primary(known: RecipeFacts) -> ButtonState:
    """Start a run of what is settled and stands on the page, or lead to the data where there is none."""
    if known.is_starting:
        return ButtonState(text=tr("Starting ..."), does="start", is_enabled=False)
    if not known.has_data:
        return ButtonState(text=tr("Add data first"), icon="next", does="data")
    if not known.is_valid:
        text = tr("Mend the value in red")
    elif known.is_suggesting:
        text = tr("Choosing a recipe ...")
    elif known.where == HERE:
        text = tr("Start training")
    else:
        text = tr("Start on {place}").format(place=place_text(known.where))
    is_settled = known.is_valid and known.is_shown and not known.is_suggesting
    return ButtonState(text=text, icon="rocket", does="start", is_enabled=is_settled)


def _status(known: RecipeFacts) -> StepStatus:
    if known.is_suggesting or known.is_starting:
        return "busy"
    if not known.is_valid or (known.plan is not None and not known.plan.fits):
        return "attention"
    if known.has_suggestion:
        return "done" if known.has_run else "ready"
    return "ready" if known.has_data else "empty"


def _note(known: RecipeFacts) -> str:
    if not known.is_valid:
        settings = sentence_list([setting_term(key) for key in known.problems if key])
        return tr("To be mended: {settings}.").format(settings=settings) if settings else _ATTENTION
    if known.plan is None or known.is_beside:  # the panel says it
        return ""
    return f"{f'{known.place}: ' if known.place else ''}{plan_line(known.plan)} {known.change}".strip()
