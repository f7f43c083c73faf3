"""The page Recipe: the suggested recipe with its reasons, editable, and its predicted memory and time."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QFileDialog

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.inspection import DatasetInspection
from burnish_app.engine.plan_follower import PlanFollower
from burnish_app.look.language import tr
from burnish_app.recipe.history import PlannedChange, RecipeHistory
from burnish_app.recipe.presets import PRESETS, Preset, PresetBasis, chosen_preset, with_preset
from burnish_app.recipe.suggested import same_elsewhere, suggested_recipe, with_suggestion
from burnish_app.state.workbench import ReplacedDraft, Workbench
from burnish_app.widgets.basic.banner import BannerAction, BusyLine
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.page import Page
from burnish_app.widgets.basic.pill import PillTone
from burnish_app.widgets.recipe.change_bar import ChangeBar
from burnish_app.widgets.recipe.fit_card import FitCard
from burnish_app.widgets.recipe.preset_bar import PresetBar
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.recipe.run_preview import RunPreview
from burnish_app.widgets.recipe.toml_editor import TomlEditor
from burnish_app.wording.plan_text import FITS, fit_verdict, plan_line
from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import MachineRequest, SuggestRequest
from burnish_engine.contract.serve.run_requests import StartRequest

_INSPECT_AFTER_MS = 900


class RecipePage(Page):
    """Requests a suggestion when model, data or target changed, and a plan with every edit."""

    key, title, question = "recipe", tr("Recipe"), tr("Will it fit?")
    has_aside = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._suggested: Recipe | None = None
        self._machine: MachineFacts | None = None
        self._inputs: tuple[object, ...] = ()
        self._suggest_request = self._start_request = ""
        self._edited_key: str | None = None  # while the page itself changes the workbench's recipe
        self._told_copy: ReplacedDraft | None = None
        self._history, self._change = RecipeHistory(bench.recipe), PlannedChange()
        self._inspection = DatasetInspection(client, bench, self)
        self.plans = PlanFollower(client, bench, self)
        self.plans.planned.connect(self._planned)
        self.plans.failed.connect(self._plan_failed)
        self._inspect_timer = QTimer(self, singleShot=True, interval=_INSPECT_AFTER_MS)
        self._inspect_timer.timeout.connect(self._inspection.inspect_dataset)
        self.fit, self.preview = FitCard(), RunPreview()
        self._busy = BusyLine(tr("Choosing a recipe for this machine and data ..."), can_cancel=True)
        self._busy.cancel.connect(lambda: self.client.cancel(self._suggest_request))
        self._busy.hide()
        self.presets = PresetBar()
        self.presets.chosen.connect(self._take_preset)
        self.plans.other_planned.connect(self.presets.show_plan)
        self.form = RecipeForm()
        self.form.edited.connect(self._edited)
        self.toml = TomlEditor()
        self.toml.edited.connect(lambda: self._edited(""))
        self.toml.hide()
        self.changes = ChangeBar(self._history)
        self.changes.wanted.connect(self._go_to_change)
        self._card = Card(
            tr("Settings"), tr("Suggested for this machine, your data and the target."), icon_name="recipe"
        )
        self._card.corner.addWidget(self.changes)
        self._card.corner.addWidget(quiet(tr("Take all suggestions"), self._take_all, "refresh"))
        self.add_secondary(tr("Import ..."), self._import, "import")
        self.add_secondary(tr("Export ..."), self._export, "export")
        self._toml_button = self.add_secondary(tr("Edit as TOML"), self._toggle_toml, "code")
        for widget in (self._busy, self.presets, self.toml, self.form):
            self._card.body.addWidget(widget)
        self.aside.addWidget(self.fit)
        self.aside.addWidget(self.preview)
        self.column.addWidget(self._card)
        self.set_primary(tr("Start training"), self._press_primary, "rocket")
        for keys, slot in (
            ("Ctrl+Z", self.changes.undo),
            ("Ctrl+Y", self.changes.redo),
            ("Ctrl+Shift+Z", self.changes.redo),
            ("Ctrl+F", self._search),
        ):
            QShortcut(QKeySequence(keys), self, slot, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        if bench.suggestion is not None:
            self._suggested = suggested_recipe(bench.suggestion)
            self._inputs = self._wanted_inputs()
        self._refresh_form()
        bench.changed.connect(self._bench_changed)
        self.aside_moved.connect(self._place_panel)
        self._place_panel(self.aside_is_beside)

    def shown(self) -> None:
        """Request a suggestion if its inputs changed, and a new plan, because free memory changes."""
        self._refresh_form()
        if not self.bench.data_files:
            self.banner(
                "info",
                tr("There is no data to learn from yet."),
                tr("The recipe is suggested once there is."),
                [(tr("Add data"), lambda: self.go_to.emit("data"))],
            )
        elif self.bench.replaced is not None and self.bench.replaced is not self._told_copy:
            self._show_copied(self.bench.replaced)
        elif self._inputs != self._wanted_inputs():
            self._suggest()
        self._inspect_timer.start()
        QTimer.singleShot(0, self, self.plans.ask)
        if self._machine is None:
            self.client.send(MachineRequest, owner=self, on_result=self._machine_known)

    def _place_panel(self, is_beside: bool) -> None:
        """Leave the summary of the run out where the panel stands above the settings: they say the same."""
        self.preview.setVisible(is_beside)
        self._show_state()

    def _machine_known(self, result: Result) -> None:
        self._machine = result.machine
        self._show_case()

    def _show_case(self) -> None:
        """Offer what model, data, machine and plan have a use for."""
        self.form.show_case(self.bench.model, self.bench.dataset, self._machine, self.bench.plan)

    def _show_copied(self, replaced: ReplacedDraft) -> None:
        """Say that the recipe is a copy of a run's: its values are kept, and no suggestion is asked for."""
        self._told_copy = replaced
        self._suggested, self._inputs = None, self._wanted_inputs()
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
        self._inputs = self._wanted_inputs()
        self._refresh_form()

    def _press_primary(self) -> None:
        """Start the run, or lead to what is missing for it."""
        if not self.bench.data_files:
            self.go_to.emit("data")
        else:
            self.start()

    def start(self, *, anyway: bool = False) -> None:
        """Start a run of the recipe, in a process of its own.

        Args:
            anyway: whether to start although the plan says that the run does not fit.
        """
        if self.client.is_open(self._start_request) or self.recipe() is None:
            return
        self.clear_banner()
        self._start_request = self.client.send(
            StartRequest,
            recipe=self.bench.recipe_toml,
            anyway=anyway,
            owner=self,
            on_result=self._started,
            on_failure=self._start_failed,
        )
        self._show_state()

    def _wanted_inputs(self) -> tuple[object, ...]:
        bench = self.bench
        return bench.model_path, bench.data_files, bench.validation_files, bench.target.kind, bench.target.ram_gib

    def _suggest(self) -> None:
        self.client.cancel(self._suggest_request)
        self._inputs = self._wanted_inputs()
        self._busy.set_progress(tr("Choosing a recipe for this machine and data ..."))
        self._busy.show()
        bench = self.bench
        self._suggest_request = name = self.client.send(
            SuggestRequest,
            model=bench.model_path,
            data=bench.data_files,
            validation=bench.validation_files,
            target=bench.target,
            recipe=bench.recipe_toml,
            owner=self,
            on_result=lambda result: self._suggested_now(name, result),
            on_failure=lambda failure: self._suggest_failed(name, failure),
            on_progress=lambda progress: self._busy.set_progress(progress.what, progress.done, progress.total),
            on_canceled=lambda: self._suggest_over(name),
        )
        self._show_state()

    def _suggested_now(self, name: str, result: Result) -> None:
        if name != self._suggest_request or result.suggestion is None:
            return
        self._suggest_over(name)
        if self._inputs != self._wanted_inputs():  # model, data or target changed meanwhile
            if self.isVisible():  # `shown` does it otherwise
                self._suggest()
            return
        suggested = suggested_recipe(result.suggestion)
        before, self._suggested = self._suggested, suggested
        if suggested is not None:
            self._write(with_suggestion(self.bench.recipe, before, suggested))
        self.bench.set_suggestion(result.suggestion)
        self._history.restart(self.bench.recipe)
        self._change.forget()
        self._inputs = self._wanted_inputs()
        QTimer.singleShot(0, self, self._show_suggested)  # in an event of its own, so that none takes long

    def _show_suggested(self) -> None:
        self._refresh_form()
        suggestion = self.bench.suggestion
        # The notes of the plan stand beside the form all the time.
        warnings = [one for one in suggestion.warnings if one not in suggestion.plan.notes] if suggestion else []
        for warning in warnings[:1]:
            self.banner("warning", warning, " ".join(warnings[1:]))

    def _suggest_failed(self, name: str, failure: Failure) -> None:
        if name != self._suggest_request:
            return
        self._suggest_over(name)
        self._inputs = ()
        self.banner("error", failure.what, failure.remedy, [(tr("Try again"), self._suggest)])

    def _suggest_over(self, name: str) -> None:
        if name == self._suggest_request:
            self._suggest_request = ""
            self._busy.hide()
            self._show_state()

    def recipe(self) -> Recipe | None:
        """Return the recipe as edited, in the form or as TOML; None while it is invalid."""
        return self.form.recipe() if self.toml.isHidden() else self.toml.recipe()

    def _edited(self, key: str) -> None:
        recipe = self.recipe()
        if recipe is not None:
            self._write(recipe, key)
            self.plans.ask_soon()  # the value may be the one from before the invalid one
            self._show_presets()
        else:
            self.plans.drop()
            self.bench.set_plan(None)
            self.fit.show_invalid()
        self._show_state()

    def _write(self, recipe: Recipe, key: str = "") -> None:
        """Change the workbench's recipe without refilling what is edited; the suggestion stays.

        Args:
            recipe: new recipe.
            key: field that the person edited; empty: several.
        """
        suggestion = self.bench.suggestion
        self._edited_key = key
        self.bench.set_recipe(recipe)
        self._edited_key = None
        if suggestion is not None and self.bench.suggestion is None:
            self.bench.set_suggestion(suggestion)

    def _rewrite(self, recipe: Recipe) -> None:
        """Change several settings at once, and show them."""
        self._write(recipe)
        self._refresh_form()
        self.plans.ask_soon()
        self._show_state()

    def _take_all(self) -> None:
        if self._suggested is not None:
            self._rewrite(with_suggestion(self.bench.recipe, None, self._suggested, take_all=True))

    def _take_preset(self, preset: Preset) -> None:
        basis = self._preset_basis()
        if basis is not None:
            self._rewrite(with_preset(self.bench.recipe, preset, basis))

    def _go_to_change(self, done: int) -> None:
        """Undo or redo; an invalid value goes first."""
        if self.recipe() is None and done < self._history.done:
            done = self._history.done
        recipe = self._history.go_to(done)
        self.toml.show_recipe(recipe)
        self._rewrite(recipe)

    def _preset_basis(self) -> PresetBasis | None:
        suggestion = self.bench.suggestion
        if self._suggested is None or suggestion is None:
            return None
        data = self.bench.recipe.data
        held_out = bool(data.validation_files or data.validation_share)
        return PresetBasis(self._suggested, suggestion.plan.steps, held_out)

    def _show_presets(self) -> None:
        basis = self._preset_basis()
        self.presets.show_basis(basis)
        if basis is not None:
            self.presets.show_chosen(chosen_preset(self.bench.recipe, basis))

    def _search(self) -> None:
        if self.toml.isHidden():
            self.form.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.form.search.selectAll()

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.fit.show_stale()
            self.plans.drop()
            if same_elsewhere(self._history.recipe, self.bench.recipe):
                self._history.record(self.bench.recipe, self._edited_key or "")
            else:
                self._history.restart(self.bench.recipe)
                self._change.forget()
            self.changes.refresh()
        if name == "recipe" and self.isVisible():  # `shown` does it otherwise
            if self._edited_key is None:
                self._refresh_form()
            self.plans.ask_soon()
            self._inspect_timer.start()
        elif name == "dataset" and self.bench.dataset is not None and self.isVisible():
            self._change.forget()
            self._show_case()
            self.plans.ask_soon()

    def _refresh_form(self) -> None:
        self.form.show_recipe(self.bench.recipe)
        suggestion = self.bench.suggestion
        reasons = {choice.key: choice.reason for choice in suggestion.choices} if suggestion else {}
        suggested = self._suggested
        if suggested is not None:  # the page Data chose what is learned, with the rows
            suggested = suggested.model_copy(update={"preference": self.bench.recipe.preference})
        self.form.show_suggestion(suggested, reasons)
        self._show_case()
        self._show_presets()
        if not self.toml.isHidden():
            self.toml.show_recipe(self.bench.recipe)

    def _planned(self, plan: RunPlan) -> None:
        self.bench.set_plan(plan)
        self.fit.show_plan(plan, full_fine_tuning=self.bench.recipe.adapter.method == "full")
        changed = self._change.take(self.bench.recipe, plan, self._history.step)
        if changed is not None:
            self.fit.change.show_change(*changed)
        else:
            self.fit.change.forget()
        self._show_case()
        self._show_state()
        self._plan_presets(plan)

    def _plan_presets(self, plan: RunPlan) -> None:
        """Ask how long the presets take that the recipe has not."""
        basis = self._preset_basis()
        if basis is None:
            return
        wanted: dict[str, Recipe] = {preset: with_preset(self.bench.recipe, preset, basis) for preset in PRESETS}
        for preset in PRESETS:
            if wanted[preset] == self.bench.recipe:
                self.presets.show_plan(preset, plan)
                del wanted[preset]
        self.plans.ask_others(wanted)

    def _plan_failed(self, failure: Failure) -> None:
        self.bench.set_plan(None)
        self.fit.show_failure(f"{failure.what} {failure.remedy}".strip())
        self._show_state()

    def _started(self, result: Result) -> None:
        if result.run:
            self.bench.set_run(result.run)
            self.go_to.emit("train")
        self._show_state()

    def _start_failed(self, failure: Failure) -> None:
        actions: list[BannerAction] = []
        if failure.exit_code in (ExitCode.DOES_NOT_FIT, ExitCode.NO_SPACE):
            actions = [(tr("Start anyway"), lambda: self.start(anyway=True))]
        self.banner("error", failure.what, failure.remedy, actions)
        self._show_state()

    def _show_state(self) -> None:
        recipe, plan = self.recipe(), self.bench.plan
        starting, suggesting = self.client.is_open(self._start_request), self.client.is_open(self._suggest_request)
        has_data = bool(self.bench.data_files)
        if self.primary is not None:
            self.primary.setEnabled((recipe is not None or not has_data) and not starting)
            self.primary.setText(
                tr("Starting ...")
                if starting
                else tr("Add data first")
                if not has_data
                else tr("Mend the value in red")
                if recipe is None
                else tr("Start training")
            )
            self.primary.set_icon("rocket" if has_data else "next")
        self.preview.show_recipe(self.bench.recipe, self.bench.model, self.bench.dataset)
        self.set_state(*self._state_of(plan if recipe is not None else None))
        if recipe is None:
            self.set_foot_note(tr("Something in the recipe needs attention."))
        elif plan is not None:
            self.set_foot_note(f"{plan_line(plan)} {'' if self.aside_is_beside else self.fit.change.text}".strip())
        elif not self.plans.is_waiting:
            self.set_foot_note("")
        if suggesting or starting:
            self.set_status("busy")
        elif recipe is None or (plan is not None and not plan.fits):
            self.set_status("attention")
        elif self.bench.suggestion is not None:
            self.set_status("done" if self.bench.run else "ready")
        else:
            self.set_status("ready" if self.bench.data_files else "empty")

    def _state_of(self, plan: RunPlan | None) -> tuple[str, PillTone]:
        if plan is None:
            return "", "plain"
        if not plan.fits:
            return tr("Does not fit"), "error"
        barely = fit_verdict(plan) != FITS
        return (tr("Fits, barely"), "warning") if barely else (tr("Fits"), "success")

    def _toggle_toml(self) -> None:
        show = self.toml.isHidden()
        if show:
            self.toml.show_recipe(self.bench.recipe)
        elif self.toml.recipe() is None:  # what is no recipe is not kept
            self.toml.show_recipe(self.bench.recipe)
            self.plans.ask_soon()
        self.toml.setVisible(show)
        self.set_filling(fills=show)
        self.form.setVisible(not show)
        self._toml_button.setText(tr("Back to the form") if show else tr("Edit as TOML"))
        self._refresh_form()
        self._show_state()

    def _import(self) -> None:
        dialog = self._file_dialog(tr("Import a recipe"), QFileDialog.AcceptMode.AcceptOpen)
        dialog.fileSelected.connect(lambda path: self.import_file(Path(path)))
        dialog.open()

    def _export(self) -> None:
        dialog = self._file_dialog(tr("Export the recipe"), QFileDialog.AcceptMode.AcceptSave)
        dialog.fileSelected.connect(lambda path: self.export_file(Path(path)))
        dialog.open()

    def _file_dialog(self, title: str, mode: QFileDialog.AcceptMode) -> QFileDialog:
        dialog = QFileDialog(self, title, "", tr("Recipes (*.toml)"))
        dialog.setAcceptMode(mode)
        dialog.setDefaultSuffix("toml")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return dialog

    def import_file(self, path: Path) -> None:
        """Replace the whole recipe (model, data and settings) by that of a file."""
        try:
            recipe = load_recipe(path)
        except BurnishError as error:
            self.banner("error", error.what, error.remedy)
            return
        self.clear_banner()
        self.bench.set_recipe(recipe)
        self._suggest()

    def export_file(self, path: Path) -> None:
        """Write the recipe to a file, with a comment on every key."""
        try:
            write_atomic(path, dump_recipe(self.bench.recipe, comments=True))
        except BurnishError as error:
            self.banner("error", error.what, error.remedy)
            return
        self.banner("success", tr("Written to {path}.").format(path=path), tr("`burnish train` takes it as it is."))
