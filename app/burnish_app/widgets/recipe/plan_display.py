"""Shows the plan of the recipe: on its cards, and the time of each preset."""

from __future__ import annotations

from burnish_app.engine.engine_there import EngineThere
from burnish_app.engine.plan_follower import PlanFollower
from burnish_app.recipe.place_text import planned_place
from burnish_app.recipe.presets import PRESETS
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.recipe.fit_card import FitCard
from burnish_app.widgets.recipe.place_card import PlaceCard
from burnish_app.widgets.recipe.preset_bar import PresetBar
from burnish_app.widgets.recipe.recipe_draft import RecipeDraft
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.serve.messages import Failure


class PlanDisplay:
    """Keeps a plan on the workbench and shows it.

    Args:
        bench: workbench with the recipe.
        draft: recipe while it is edited.
        plans: follower that asks for plans.
        engine: engine of the machine that the recipe trains on.
        presets: choice of presets.

    Attributes:
        fit: card of what a run takes.
        place: card of the machine elsewhere.
    """

    def __init__(
        self, bench: Workbench, draft: RecipeDraft, plans: PlanFollower, engine: EngineThere, presets: PresetBar
    ) -> None:
        self._bench, self._draft, self._plans, self._engine = bench, draft, plans, engine
        self._presets = presets
        self.fit, self.place = FitCard(), PlaceCard(engine)

    @property
    def where(self) -> str:
        """The machine that is planned for, as people call it."""
        return planned_place(self._engine.where, self._engine.offers)

    def show_plan(self, plan: RunPlan) -> None:
        """Show a new plan, and what the last change did to it."""
        self._bench.set_plan(plan)
        whole = self._bench.recipe.adapter.method == "full"
        self.fit.show_plan(plan, full_fine_tuning=whole, where=self.where)
        self.place.show_plan(plan)
        changed = self._draft.planned_change(plan)
        if changed is not None:
            self.fit.change.show_change(*changed)
        else:
            self.fit.change.forget()

    def plan_presets(self, plan: RunPlan) -> None:
        """Ask how long the presets take that the recipe has not.

        Args:
            plan: plan of the recipe.
        """
        presets = self._draft.with_presets()
        for preset, recipe in presets.items():
            if recipe == self._bench.recipe:
                self._presets.show_plan(preset, plan)
        if presets:
            self._plans.ask_others({preset: one for preset, one in presets.items() if one != self._bench.recipe})

    def show_elsewhere(self, where: str) -> None:
        """Show that the recipe trains on a machine that nothing is known of yet."""
        self._take_back()
        self.fit.show_elsewhere(where)
        for preset in PRESETS:  # their times were this machine's
            self._presets.show_plan(preset, None)

    def show_failure(self, failure: Failure) -> None:
        """Show why there is no plan."""
        self._take_back()
        self.fit.show_failure(f"{failure.what} {failure.remedy}".strip())

    def show_invalid(self) -> None:
        """Show that nothing is predicted while a value is invalid."""
        self._plans.drop()
        self._bench.set_plan(None)
        self.fit.show_invalid()

    def _take_back(self) -> None:
        self._bench.set_plan(None)
        self.place.show_plan(None)
