"""Says how far a recipe is from a run: the page's button, the note at its foot and its status. Pure, no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.recipe.plan_text import plan_line
from burnish_app.state.step_status import StepStatus
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.numbers import sentence_list
from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.place import HERE

_ATTENTION = tr("Something in the recipe needs attention.")


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The distance of a recipe from a run, by what is there and what is missing.

    Attributes:
        is_valid: whether every value is valid.
        has_data: whether there is data to learn from.
        has_suggestion: whether a recipe was suggested.
        has_run: whether a run was started before.
        is_suggesting: whether a suggestion is awaited, which may change the recipe.
        is_shown: whether the page shows the recipe that would be started.
        is_starting: whether a run is being started.
        plan: plan of the recipe; None: it is not planned yet.
        where: place that the recipe trains at.
    """

    is_valid: bool
    has_data: bool
    has_suggestion: bool
    has_run: bool
    is_suggesting: bool
    is_shown: bool
    is_starting: bool
    plan: RunPlan | None
    where: str

    @property
    def can_start(self) -> bool:
        """Whether a run can be started: what it would train with is settled, and stands on the page."""
        is_settled = self.is_shown and not self.is_suggesting and not self.is_starting
        return self.is_valid and self.has_data and is_settled

    @property
    def can_press(self) -> bool:
        """Whether the button does something: it starts the run, or leads to the data where there is none."""
        return self.can_start or not (self.has_data or self.is_starting)

    @property
    def button_text(self) -> str:
        """The text of the button."""
        if self.is_starting:
            return tr("Starting ...")
        if not self.has_data:
            return tr("Add data first")
        if not self.is_valid:
            return tr("Mend the value in red")
        if self.is_suggesting:
            return tr("Choosing a recipe ...")
        if self.where == HERE:
            return tr("Start training")
        return tr("Start on {place}").format(place=place_text(self.where))

    @property
    def status(self) -> StepStatus:
        """The status of the page in the sidebar."""
        if self.is_suggesting or self.is_starting:
            return "busy"
        if not self.is_valid or (self.plan is not None and not self.plan.fits):
            return "attention"
        if self.has_suggestion:
            return "done" if self.has_run else "ready"
        return "ready" if self.has_data else "empty"

    def note(self, problems: Sequence[str], place: str, change: str) -> str:
        """Return the note at the foot of the page; empty where nothing is known yet.

        Args:
            problems: dotted keys of invalid settings, as far as known; they may be scrolled out of view.
            place: machine that the plan is of; empty: this one.
            change: what the last change did to the plan; empty: nothing, or it stands elsewhere.
        """
        if not self.is_valid:
            settings = sentence_list([setting_term(key) for key in problems if key])
            return tr("To be mended: {settings}.").format(settings=settings) if settings else _ATTENTION
        if self.plan is None:
            return ""
        return f"{f'{place}: ' if place else ''}{plan_line(self.plan)} {change}".strip()
