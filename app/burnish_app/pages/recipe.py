"""The page Recipe: the suggested recipe with its reasons, editable, and its predicted memory and time."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QFileDialog, QPlainTextEdit

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.inspection import DatasetInspection
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, font
from burnish_app.recipe.suggested import suggested_recipe, with_suggestion
from burnish_app.state.workbench import ReplacedDraft, Workbench
from burnish_app.widgets.basic.banner import BannerAction, BusyLine
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.page import Page
from burnish_app.widgets.basic.pill import PillTone
from burnish_app.widgets.recipe.fit_card import FITS, FitCard, fit_verdict, plan_line
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.recipe.run_preview import RunPreview
from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.serve.data_requests import EstimateRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import SuggestRequest
from burnish_engine.contract.serve.run_requests import StartRequest

_ESTIMATE_AFTER_MS = 150
_INSPECT_AFTER_MS = 900


class RecipePage(Page):
    """Requests a suggestion when model, data or target changed, and a plan with every edit."""

    key, title, question = "recipe", tr("Recipe"), tr("Will it fit?")
    has_aside = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._suggested: Recipe | None = None
        self._inputs: tuple[object, ...] = ()
        self._suggest_request = self._estimate_request = self._start_request = ""
        self._writing = False
        self._told_facts = (0, 0)
        self._told_copy: ReplacedDraft | None = None
        self._inspection = DatasetInspection(client, bench, self)
        self._estimate_timer = QTimer(self, singleShot=True, interval=_ESTIMATE_AFTER_MS)
        self._estimate_timer.timeout.connect(self._estimate)
        self._inspect_timer = QTimer(self, singleShot=True, interval=_INSPECT_AFTER_MS)
        self._inspect_timer.timeout.connect(self._inspection.inspect_dataset)
        self.fit = FitCard()
        self._busy = BusyLine(tr("Choosing a recipe for this machine and data ..."), can_cancel=True)
        self._busy.cancel.connect(lambda: self.client.cancel(self._suggest_request))
        self._busy.hide()
        self.form = RecipeForm()
        self.form.edited.connect(self._edited)
        self._card = Card(
            tr("Settings"),
            tr("Suggested for this machine, your data and the target. Hover over a name to read more."),
            icon_name="recipe",
        )
        self._card.corner.addWidget(quiet(tr("Take all suggestions"), self._take_all, "undo"))
        self.add_secondary(tr("Import ..."), self._import, "import")
        self.add_secondary(tr("Export ..."), self._export, "export")
        self._toml_button = self.add_secondary(tr("View as TOML"), self._toggle_toml, "code")
        self._toml = QPlainTextEdit()
        self._toml.setReadOnly(True)
        self._toml.setFont(font(SMALL_PX, mono=True))
        self._toml.setAccessibleName(tr("The recipe as TOML"))
        self._toml.hide()
        for widget in (self._busy, self._toml, self.form):
            self._card.body.addWidget(widget)
        self.preview = RunPreview()
        self.aside.addWidget(self.fit)
        self.aside.addWidget(self.preview)
        self.column.addWidget(self._card)
        self.set_primary(tr("Start training"), self._press_primary, "rocket")
        if bench.suggestion is not None:
            self._suggested = suggested_recipe(bench.suggestion)
            self._inputs = self._wanted_inputs()
        self._refresh_form()
        bench.changed.connect(self._bench_changed)
        self._show_state()

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
        QTimer.singleShot(0, self, self._estimate)

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
        if self.client.is_open(self._start_request) or self.form.recipe() is None:
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

    def _edited(self) -> None:
        recipe = self.form.recipe()
        if recipe is not None:
            self._write(recipe)
            self._estimate_timer.start()  # the value may be the one from before the invalid one
        else:
            self._estimate_timer.stop()
            self.client.cancel(self._estimate_request)
            self._estimate_request = ""
            self.bench.set_plan(None)
            self.fit.show_invalid()
        self._show_state()

    def _write(self, recipe: Recipe) -> None:
        """Change the workbench's recipe without refilling the form; the suggestion stays."""
        suggestion = self.bench.suggestion
        self._writing = True
        self.bench.set_recipe(recipe)
        self._writing = False
        if suggestion is not None and self.bench.suggestion is None:
            self.bench.set_suggestion(suggestion)

    def _take_all(self) -> None:
        if self._suggested is not None:
            self._write(with_suggestion(self.bench.recipe, None, self._suggested, take_all=True))
            self._refresh_form()

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.fit.show_stale()
            self.client.cancel(self._estimate_request)  # its answer would be about another recipe
            self._estimate_request = ""
        if name == "recipe" and self.isVisible():  # `shown` does it otherwise
            if not self._writing:
                self._refresh_form()
            self._estimate_timer.start()
            self._inspect_timer.start()
        elif name == "dataset" and self.bench.dataset is not None and self.isVisible():
            self._estimate_timer.start()

    def _refresh_form(self) -> None:
        self.form.show_recipe(self.bench.recipe)
        suggestion = self.bench.suggestion
        reasons = {choice.key: choice.reason for choice in suggestion.choices} if suggestion else {}
        suggested = self._suggested
        if suggested is not None:  # the page Data chose what is learned, with the rows
            suggested = suggested.model_copy(update={"preference": self.bench.recipe.preference})
        self.form.show_suggestion(suggested, reasons)
        if not self._toml.isHidden():
            self._toml.setPlainText(self.bench.recipe_toml)

    def _estimate(self) -> None:
        if self.form.recipe() is None:
            return
        self.client.cancel(self._estimate_request)
        where = self.bench.recipe.devices.where
        if where != HERE:  # this machine's memory and speed say nothing about it
            self._estimate_request = ""
            self.bench.set_plan(None)
            self.fit.show_elsewhere(where)
            self._show_state()
            return
        self._estimate_request = name = self.client.send(
            EstimateRequest,
            recipe=self.bench.recipe_toml,
            dataset=self._untold_facts(),
            owner=self,
            on_result=lambda result: self._planned(name, result),
            on_failure=lambda failure: self._plan_failed(name, failure),
        )

    def _untold_facts(self) -> DatasetFacts | None:
        """Return the facts on the data if this server did not get or find them yet, as after a restart."""
        facts = self.bench.dataset
        now = (self.client.generation, id(facts))
        if facts is None or now == self._told_facts or self.bench.data_was_replaced:
            return None
        self._told_facts = now
        return facts

    def _planned(self, name: str, result: Result) -> None:
        if name == self._estimate_request and result.plan is not None:
            self.bench.set_plan(result.plan)
            self.fit.show_plan(result.plan, full_fine_tuning=self.bench.recipe.adapter.method == "full")
            self._show_state()

    def _plan_failed(self, name: str, failure: Failure) -> None:
        if name == self._estimate_request:
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
        recipe, plan = self.form.recipe(), self.bench.plan
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
            self.set_foot_note(plan_line(plan))
        elif not (self._estimate_timer.isActive() or self.client.is_open(self._estimate_request)):
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
        show = self._toml.isHidden()
        if show:
            self._toml.setPlainText(self.bench.recipe_toml)
        self._toml.setVisible(show)
        self.set_filling(fills=show)
        self.form.setVisible(not show)
        self._toml_button.setText(tr("View as form") if show else tr("View as TOML"))

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
