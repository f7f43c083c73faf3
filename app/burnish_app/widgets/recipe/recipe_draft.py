"""The recipe while it is edited: what is suggested for it, the presets, and the changes, which can be undone."""

from __future__ import annotations

from burnish_app.recipe.history import PlannedChange, RecipeHistory
from burnish_app.recipe.plan_text import Effect
from burnish_app.recipe.presets import PRESETS, Preset, PresetBasis, with_preset
from burnish_app.recipe.suggested import same_elsewhere, suggested_recipe, with_suggestion
from burnish_app.state.objectives import OBJECTIVE
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.facts.advice import RunPlan, Suggestion
from burnish_engine.contract.recipe.recipe import Recipe


class RecipeDraft:
    """Changes the workbench's recipe for the page Recipe.

    Args:
        bench: workbench with the recipe and its suggestion.

    Attributes:
        suggested: recipe that is suggested; None: there is none, as for the copy of a run's recipe.
        history: changes of the recipe.
        edited_key: field whose edit is being written now, empty for several; None: the recipe changes elsewhere.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.suggested = suggested_recipe(bench.suggestion)
        self.history = RecipeHistory(bench.recipe)
        self.edited_key: str | None = None
        self._planned = PlannedChange()
        self._suggestions: dict[str, Suggestion] = {}

    @property
    def is_for_objective(self) -> bool:
        """Whether there is a suggestion, and it is for what the recipe learns."""
        recipe, suggested = self._bench.recipe, self.suggested
        return suggested is not None and suggested.preference.objective == recipe.preference.objective

    def write(self, recipe: Recipe, key: str = "") -> None:
        """Change the workbench's recipe. The suggestion stays.

        Args:
            recipe: new recipe.
            key: field that the person edited; empty: several.
        """
        suggestion = self._bench.suggestion
        self.edited_key = key
        self._bench.set_recipe(recipe)
        self.edited_key = None
        if suggestion is not None and self._bench.suggestion is None:
            self._bench.set_suggestion(suggestion)

    def record(self) -> None:
        """Add what the recipe became to the changes. One for another model or other data begins them anew."""
        if self.edited_key == OBJECTIVE or same_elsewhere(self.history.recipe, self._bench.recipe):
            self.history.record(self._bench.recipe, self.edited_key or "")
        else:
            self.restart()

    def restart(self) -> None:
        """Forget all changes: they were about other data, another model, or another suggestion."""
        self.history.restart(self._bench.recipe)
        self._planned.forget()
        self._suggestions = {}

    def go_to(self, done: int) -> Recipe:
        """Undo or redo, and return the recipe of that time. A suggestion for its objective comes back with it.

        Args:
            done: number of changes that are to be done.
        """
        recipe = self.history.go_to(done)
        objective = recipe.preference.objective
        if objective != self._bench.recipe.preference.objective:
            self._keep_suggestion()
            if objective in self._suggestions:
                suggestion = self._suggestions[objective]
                self.suggested = suggested_recipe(suggestion)
                self._bench.set_suggestion(suggestion)
        return recipe

    def suggest(self, suggestion: Suggestion) -> None:
        """Take a new suggestion for each field that the person did not change.

        Where it follows a change of the objective, it becomes part of that change, which can be undone.
        """
        self._keep_suggestion()
        history, former = self.history, self.history.before.preference.objective
        follows = self._bench.recipe == history.recipe and history.recipe.preference.objective != former
        before, self.suggested = self.suggested, suggested_recipe(suggestion)
        if self.suggested is not None:
            recipe = with_suggestion(self._bench.recipe, before, self.suggested)
            if follows:
                history.amend(recipe)
            self.write(recipe)
        self._bench.set_suggestion(suggestion)
        if not follows:
            self.restart()

    def _keep_suggestion(self) -> None:
        """Keep the suggestion for the objective that it is for, to come back with an undo."""
        if self.suggested is not None and self._bench.suggestion is not None:
            self._suggestions[self.suggested.preference.objective] = self._bench.suggestion

    def all_suggested(self) -> Recipe | None:
        """Return the recipe with every suggested value; None: nothing is suggested."""
        if self.suggested is None:
            return None
        return with_suggestion(self._bench.recipe, None, self.suggested, take_all=True)

    def suggested_values(self) -> Recipe | None:
        """Return what is suggested. What is learned is chosen with the rows, on the page Data."""
        if self.suggested is None:
            return None
        return self.suggested.model_copy(update={"preference": self._bench.recipe.preference})

    def preset_basis(self) -> PresetBasis | None:
        """Return what presets are made from; None without a suggestion."""
        suggestion, data = self._bench.suggestion, self._bench.recipe.data
        if self.suggested is None or suggestion is None:
            return None
        return PresetBasis(self.suggested, suggestion.plan.steps, bool(data.validation_files or data.validation_share))

    def with_presets(self) -> dict[Preset, Recipe]:
        """Return the recipe with each preset; empty without a suggestion."""
        basis = self.preset_basis()
        return {preset: with_preset(self._bench.recipe, preset, basis) for preset in PRESETS} if basis else {}

    def planned_change(self, plan: RunPlan) -> tuple[str, list[Effect]] | None:
        """Take a new plan, and return what the last change was and did to it; None: nothing changed."""
        return self._planned.take(self._bench.recipe, plan, self.history.step)
