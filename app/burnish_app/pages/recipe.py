"""The page Recipe: the suggested recipe with its reasons, editable, and its predicted memory and time."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer
from typing_extensions import override

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.engine.inspection import DatasetInspection
from burnish_app.engine.plan_follower import PlanFollower
from burnish_app.engine.question import Question
from burnish_app.engine.suggestion_follower import SuggestionFollower
from burnish_app.look.language import tr
from burnish_app.page_states.recipe import RecipeFacts, page_state
from burnish_app.recipe.plan_text import run_subject
from burnish_app.recipe.presets import Preset
from burnish_app.recipe.suggested import same_elsewhere
from burnish_app.state.known_places import REACHED, known_places
from burnish_app.state.objectives import OBJECTIVE
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import ReplacedDraft, Workbench
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.recipe.plan_display import PlanDisplay
from burnish_app.widgets.recipe.recipe_draft import RecipeDraft
from burnish_app.widgets.recipe.recipe_editor import RecipeEditor
from burnish_app.widgets.recipe.recipe_files import RecipeFiles
from burnish_app.widgets.recipe.run_start import RunStart
from burnish_app.widgets.rewards.rewards_editor import RewardsEditor
from burnish_engine.contract.facts.advice import RunPlan, Suggestion
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import MachineRequest
from burnish_engine.contract.serve.replies import RunSummary

_INSPECT_AFTER_MS = 900


class RecipePage(Page):
    """Requests a suggestion when model, data or target changed, and a plan with every edit."""

    key, title, question = "recipe", tr("Recipe"), tr("Will it fit?")
    has_side_column = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._machine: MachineFacts | None = None
        self._machines = Question(client, self, self._machine_known)
        self._run_places: list[str] = []
        self._told_copy: ReplacedDraft | None = None
        self.draft = RecipeDraft(bench)
        self._inspection = DatasetInspection(client, bench, self)
        self.there = EngineThere.beside(client)
        self.there.recipe_text = lambda: bench.recipe_toml
        self.there.found.connect(self._place_found)
        self.suggestions = SuggestionFollower(client, bench, self.there, self)
        self.suggestions.suggested.connect(self._suggested_now)
        self.suggestions.outdated.connect(self._suggest_again)
        self.suggestions.failed.connect(self._suggest_failed)
        self.suggestions.ended.connect(self._show)
        self.starting = RunStart(client, bench, self.there, self)
        self.starting.started.connect(self._started)
        self.starting.refused.connect(self._show)
        self.starting.wanted_anyway.connect(lambda: self.start(anyway=True))
        self.plans = PlanFollower(client, bench, self.there, self)
        self.plans.planned.connect(self._planned)
        self.plans.failed.connect(self._plan_failed)
        self.plans.elsewhere.connect(self._planned_elsewhere)
        self._inspect_timer = QTimer(self, singleShot=True, interval=_INSPECT_AFTER_MS)
        self._inspect_timer.timeout.connect(self._inspection.inspect_dataset)
        self.settings = RecipeEditor(self.draft.history, self)
        self.form, self.toml = self.settings.form, self.settings.toml
        self.display = PlanDisplay(bench, self.draft, self.plans, self.there, self.settings.presets)
        self.fit, self.place = self.display.fit, self.display.place
        self.settings.edited.connect(self._edited)
        self.settings.wanted_all.connect(self._take_all)
        self.settings.view.chosen.connect(self._show_as)
        self.settings.changes.wanted.connect(self._go_to_change)
        self.settings.presets.chosen.connect(self._take_preset)
        self.settings.busy.cancel.connect(self.suggestions.cancel)
        self.suggestions.progressed.connect(self.settings.busy.set_progress)
        self.plans.other_planned.connect(self.settings.presets.show_plan)
        self.files = RecipeFiles(self, lambda: bench.recipe)
        self.files.chosen.connect(lambda path: self.take_drop([path]))
        self.files.exported.connect(self._exported)
        self.files.failed.connect(lambda what, remedy: self.banner("error", what, remedy))
        self.add_secondary(tr("Import ..."), self.files.ask_import, "import", "import")
        self.add_secondary(tr("Export ..."), self._export, "export", "export")
        self.side.column.addWidget(self.fit)
        self.side.column.addWidget(self.place)
        self.rewards = RewardsEditor(client, bench, self)
        self.rewards.rewritten.connect(lambda recipe: self._rewrite(recipe, "reward"))
        self.rewards.spoiled.connect(lambda: self._spoil("reward"))
        self.column.addWidget(self.rewards.card)
        self.column.addWidget(self.settings)
        self.parts |= {"busy": self.settings.busy}
        self.set_primary(tr("Start training"), self._press_primary, "rocket")
        if bench.suggestion is not None:
            self.suggestions.keep()
        self._refresh_form()
        bench.changed.connect(self._bench_changed)
        self.side.moved.connect(self._place_panel)
        self._place_panel(self.side.is_beside)

    def shown(self) -> None:
        """Request a suggestion if its inputs changed, and a new plan, because free memory changes."""
        self._refresh_form()
        self.there.choose(self.bench.recipe.devices.where)
        self.there.refresh_offers()
        self._offer_places()
        if not self.bench.data_files:
            self.banner(
                "info",
                tr("There is no data to learn from yet."),
                tr("The recipe is suggested once there is."),
                [(tr("Add data"), lambda: self.go_to.emit("data"))],
            )
        elif self.bench.replaced is not None and self.bench.replaced is not self._told_copy:
            self._show_copied(self.bench.replaced)
        elif not self.suggestions.is_current:
            self._suggest()
        self._inspect_timer.start()
        QTimer.singleShot(0, self, self.plans.ask)
        if self._machine is None:
            self._machines.ask(MachineRequest)

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Offer the places of runs to train at."""
        self._run_places = [run.state.where for run in runs]
        if self.isVisible():
            self._offer_places()

    def _offer_places(self) -> None:
        self.form.show_places(known_places(Preferences().recent(REACHED), self._run_places))

    def _place_panel(self, is_beside: bool) -> None:
        """Keep the panel small where it stands above the settings, which say the same, and the foot the rest."""
        self.fit.change.set_elsewhere(is_elsewhere=not is_beside)
        self._show()

    def _machine_known(self, result: Result) -> None:
        self._machine = result.machine
        self._show_case()

    def _show_case(self) -> None:
        """Offer what model, data, machine and plan have a use for."""
        bench = self.bench
        self.form.show_case(bench.model, bench.last_dataset, self.there.machine or self._machine, bench.plan)

    def _show_copied(self, replaced: ReplacedDraft) -> None:
        """Say that the recipe is a copy of another: its values are kept, and no suggestion is asked for."""
        self._told_copy = replaced
        self.draft.suggested = None
        self.suggestions.keep()
        self._refresh_form()
        self.banner(
            "info",
            tr("This is a copy of the recipe of {source}.").format(source=replaced.source),
            tr("It took the place of the draft that was here."),
            [(tr("Take my draft back"), self._take_back)],
            close_text=tr("Keep the copy"),
        )

    def _take_back(self) -> None:
        self.bench.take_back_draft()
        self.clear_banner()
        self.suggestions.keep()
        self._refresh_form()

    def _press_primary(self) -> None:
        """Start the run, or lead to what is missing for it."""
        if self.does == "data":
            self.go_to.emit("data")
        else:
            self.start()

    def start(self, *, anyway: bool = False) -> None:
        """Start a run of the recipe, in a process of its own.

        Args:
            anyway: whether to start although the plan says that the run does not fit.
        """
        self.toml.read_pending()
        self._show()
        if self.does == "start":
            self.clear_banner()
            self.starting.start(anyway=anyway)
            self._show()

    def _suggest(self) -> None:
        self.settings.busy.set_progress(tr("Choosing a recipe for machine and data ..."))
        self.starting.forget_refusal()
        self.suggestions.ask()
        self._show()

    def _suggest_again(self) -> None:
        if self.isVisible():  # `shown` does it otherwise
            self._suggest()

    def _suggested_now(self, suggestion: Suggestion) -> None:
        self.draft.suggest(suggestion)
        self.suggestions.keep()
        self.settings.changes.refresh()
        self._show()  # nothing starts before it is seen
        QTimer.singleShot(0, self, self._show_suggested)  # in an event of its own, so that none takes long

    def _show_suggested(self) -> None:
        self._refresh_form()
        suggestion = self.bench.suggestion
        # The notes of the plan stand beside the form all the time.
        warnings = [one for one in suggestion.warnings if one not in suggestion.plan.notes] if suggestion else []
        for warning in warnings[:1]:
            self.banner("warning", warning, " ".join(warnings[1:]))

    def _suggest_failed(self, failure: Failure) -> None:
        self.banner("error", failure.what, failure.remedy, [(tr("Try again"), self._suggest)])

    def _edited(self, key: str) -> None:
        recipe = self.settings.recipe()
        if recipe is not None:
            if key and recipe.preference.objective != self.bench.recipe.preference.objective:
                key = OBJECTIVE  # chosen now, or while another value was invalid
            self.draft.write(recipe, key)
            self._plan_soon()  # the value may be the one from before the invalid one
            if key == OBJECTIVE:
                self._refresh_form()  # what is learned is not suggested
                if self.bench.data_files and not self.suggestions.is_current:
                    self._suggest()  # each objective has a learning rate of its own
            else:
                self._show_presets()
            self._show()
        else:
            self._spoil(key)

    def _spoil(self, key: str) -> None:
        """Predict nothing while a value is invalid."""
        self.draft.history.spoil(key)
        self.display.show_invalid()
        self._show()

    def _plan_soon(self) -> None:
        if self._is_valid:
            self.plans.ask_soon()

    def _rewrite(self, recipe: Recipe, key: str = "") -> None:
        """Change settings from outside the form, and show them.

        Args:
            recipe: new recipe.
            key: field that the person edited, of which quick edits are one change; empty: several.
        """
        self.draft.write(recipe, key)
        self._refresh_form()
        self._plan_soon()
        self._show()

    def _take_all(self) -> None:
        self.toml.read_pending()
        recipe = self.draft.all_suggested()
        if recipe is not None:
            self._rewrite(recipe)

    def _take_preset(self, preset: Preset) -> None:
        self.toml.read_pending()
        found = self.draft.with_presets()
        if preset in found:
            self._rewrite(found[preset])

    def _go_to_change(self, done: int) -> None:
        """Undo or redo; an invalid value goes first."""
        history = self.draft.history
        if not self._is_valid and done < history.done:
            done = history.before_spoiled
        self.rewards.drop_edits()
        replaced = self.bench.replaced
        if done < 0 and replaced is not None and same_elsewhere(replaced.copy, self.bench.recipe):
            self._take_back()
            return
        objective = self.bench.recipe.preference.objective
        self._rewrite(self.draft.go_to(done))
        if self.bench.recipe.preference.objective != objective:
            self._follow_objective()

    def _follow_objective(self) -> None:
        """Suggest for the objective that undo or redo brought back, unless its suggestion came back as well."""
        if self.draft.is_for_objective:
            self.suggestions.cancel()
            self.suggestions.keep()
        elif self.bench.data_files:
            self._suggest()

    def _show_presets(self) -> None:
        self.settings.show_presets(self.bench.recipe, self.draft.preset_basis())

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.starting.forget_refusal()
            self.fit.show_stale()
            self.plans.drop()
            if self.isVisible():
                self.there.choose(self.bench.recipe.devices.where)
            self.draft.record()
            self.settings.changes.refresh()
        if name == "recipe" and self.isVisible():  # `shown` does it otherwise
            if self.draft.edited_key is None:
                self._refresh_form()
            self._plan_soon()
            self._inspect_timer.start()
        elif name == "replaced" and self.bench.replaced is not None and self.isVisible():
            self._show_copied(self.bench.replaced)
        elif name == "dataset" and self.bench.dataset is not None and self.isVisible():
            self._show_case()
            self._plan_soon()

    def _refresh_form(self) -> None:
        suggestion = self.bench.suggestion
        reasons = {choice.key: choice.reason for choice in suggestion.choices} if suggestion else {}
        self.settings.show_recipe(self.bench.recipe, self.draft.suggested_values(), reasons)
        self._show_case()
        self._show_presets()
        self._show()

    def _planned(self, plan: RunPlan) -> None:
        self.display.show_plan(plan)
        self._show_case()
        self._show()
        self.display.plan_presets(plan)

    def _place_found(self) -> None:
        """Suggest and plan for another machine, once it said what it is, or for this one, once it is forgotten."""
        if not self.isVisible():  # `shown` does it otherwise
            return
        self._show_case()
        if self.bench.data_files and self.settings.recipe() is not None and not self.suggestions.is_current:
            self._suggest()
        self._plan_soon()

    def _planned_elsewhere(self, where: str) -> None:
        self.display.show_elsewhere(where)
        self._show()

    def _plan_failed(self, failure: Failure) -> None:
        self.display.show_failure(failure)
        self._show()

    def _started(self, folder: str) -> None:
        if folder:
            self.bench.set_run(folder)
            self.go_to.emit("train")
        self._show()

    @property
    def _is_valid(self) -> bool:
        return self.settings.recipe() is not None and self.rewards.is_valid

    def _problems(self) -> tuple[str, ...]:
        """Return the keys of what is invalid, as far as they are known."""
        rewards = () if self.rewards.is_valid else ("reward",)
        return rewards if self.settings.is_toml else (*rewards, *self.form.problems())

    def _facts(self) -> RecipeFacts:
        bench = self.bench
        return RecipeFacts(
            is_valid=self._is_valid,
            has_data=bool(bench.data_files),
            has_suggestion=bench.suggestion is not None,
            has_run=bool(bench.run),
            is_suggesting=self.suggestions.is_waiting,
            is_shown=self.settings.shows(bench.recipe),
            is_starting=self.starting.is_waiting,
            is_planning=self.plans.is_waiting,
            is_toml=self.settings.is_toml,
            is_beside=self.side.is_beside,
            subject=run_subject(bench.recipe, bench.model),
            plan=bench.plan,
            where=bench.recipe.devices.where,
            place=self.display.where if self.there.where else "",
            problems=self._problems(),
            change="" if self.side.is_beside else self.fit.change.text,
        )

    def _show(self) -> None:
        self.rewards.show_recipe(self.bench.recipe)
        self.apply(page_state(self._facts()))

    def _show_as(self, view: str) -> None:
        self.toml.read_pending()
        was_invalid = self.settings.recipe() is None
        self.settings.show_as(self.bench.recipe, toml=view == "toml")
        self._refresh_form()
        if was_invalid:
            self._plan_soon()
        if not self.suggestions.is_current and self.bench.data_files:  # the text named another model or other data
            self._suggest()
        self._show()

    def _export(self) -> None:
        self.toml.read_pending()
        self.files.ask_export()

    @override
    def take_drop(self, paths: list[str], *, instead: bool = False) -> None:
        before = self.bench.replaced
        self.draft_from(Path(paths[0]), Path(paths[0]).name)
        if self.bench.replaced is not before:  # it could be read, and need not say everything
            self._suggest()

    def _exported(self, path: str) -> None:
        self.banner("success", tr("Written to {path}.").format(path=path), tr("`burnish train` takes it as it is."))
