"""The page Export: the choice of files, the progress of the export, and the fidelity report."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError
from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication

from burnish_app.curves.export_points import export_points
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.export_follower import ExportFollower
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.page_states.export import is_running, notice, page_state
from burnish_app.recipe.suggested import suggested_recipe
from burnish_app.state.failure_details import details_text
from burnish_app.state.run_folder import RunFolder, frozen_section, read_run_folder
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import EmptyState
from burnish_app.widgets.basic.to_come import CardsToCome, NothingYet
from burnish_app.widgets.export.export_choices import ExportChoices
from burnish_app.widgets.export.export_progress import ExportProgress
from burnish_app.widgets.export.exported_files import ExportedFiles, Outcome
from burnish_app.widgets.export.fidelity_card import FidelityCard
from burnish_app.widgets.export.file_actions import PROGRAMS
from burnish_app.widgets.export.size_card import SizeCard
from burnish_app.widgets.page.page import Page
from burnish_app.wording.activity import Activity
from burnish_app.wording.causes import export_failure
from burnish_app.wording.export_stages import handed_over_text
from burnish_app.wording.fidelity_text import recommended_type
from burnish_engine.contract.facts.advice import ModelFacts
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.facts.exports import ExportKind
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_export import ExportSection, TargetSection
from burnish_engine.contract.serve.export_requests import (
    CancelExportRequest,
    ExportRequest,
    ForecastRequest,
    HandOverRequest,
    ProgramName,
    ProgramsRequest,
)
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import ModelRequest
from burnish_engine.contract.serve.replies import ExportJob, RunSummary

_K_BLOCK = 256  # values in a block of the K types (ggml's QK_K)
_FORECAST_AFTER_MS = 500


class ExportPage(Page):
    """Starts an export in a process of its own and shows its progress and report."""

    key, title, question = "export", tr("Export"), tr("Is it safe to ship?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._folder = RunFolder()
        self._model: ModelFacts | None = None
        self._model_path = ""
        self.job: ExportJob | None = None
        self._knows_job = False  # whether an export of this run is running is known
        self._starting = Question(
            client, self, lambda _result: self.refresh_runs.emit(), self.failed, changed=self._show
        )
        empty = NothingYet(
            EmptyState(
                "export",
                tr("There is nothing trained to export yet."),
                tr("Go to training"),
                lambda: self.go_to.emit("train"),
                detail=tr("Files can be made from any run with a checkpoint. Runs lists them all."),
            ),
            CardsToCome(tr("The files and their proof appear here"), (1, 2)),
        )
        self.progress = ExportProgress()
        self.progress.cancel.connect(self._cancel)
        self.fidelity = FidelityCard()
        self.files = ExportedFiles(lambda: self.go_to.emit("try_out"))
        self.files.hand_over.connect(self._hand_over)
        self.fidelity.acts.hand_over.connect(self._hand_over)
        self.fidelity.acts.tried.connect(lambda: self.go_to.emit("try_out"))
        self._wants_more = False
        self._handing_over: dict[str, Activity] = {}
        self.choices = ExportChoices()
        self.choices.changed.connect(self._choices_changed)
        self.sizes = SizeCard()
        self.sizes.chart.toggled.connect(self.choices.types.toggle)
        self._forecast: ExportForecast | None = None
        self._forecasts = Question(client, self, self._forecast_found, self._forecast_failed)
        self._models = Question(client, self, self._model_found)
        self._forecast_timer = QTimer(self, singleShot=True, interval=_FORECAST_AFTER_MS)
        self._forecast_timer.timeout.connect(self._ask_forecast)
        self.add_parts(
            empty=empty,
            progress=self.progress,
            to_come=CardsToCome(tr("The proof and the files appear when all is checked"), (1, 2)),
            fidelity=self.fidelity,
            files=self.files,
            sizes=self.sizes,
            choices=self.choices,
        )
        self.set_primary(tr("Export"), self._press_primary, "export")
        bench.changed.connect(self._bench_changed)
        self._follower = ExportFollower(self)
        self._follower.advanced.connect(self._advanced)
        self._begin_choices()
        self._read_run()

    def closing(self) -> None:
        """Stop following the export, which continues."""
        self._follower.follow("")

    def shown(self) -> None:
        """Read the run's folder again, because it may have changed."""
        self._read_run()
        self.command(ProgramsRequest, self._offer_programs)
        self.refresh_runs.emit()

    @property
    def kind(self) -> ExportKind:
        """The chosen kind of export."""
        return self.choices.kind

    def _offer_programs(self, result: Result) -> None:
        self.files.offer(result.programs or [])
        self._show_files()

    def _press_primary(self) -> None:
        """Start the export, or show the choices below the files that are there."""
        if self.does == "choose":
            self._wants_more = True
            self._show()
            self._see(self.choices)
            self._forecast_timer.start()
        elif self.does == "export":
            self.start()

    def start(self) -> None:
        """Start the export."""
        if not self._starting.is_waiting:
            self.clear_banner()
            self.setFocus()  # else it would go to the sidebar once the button is disabled
            self._starting.ask(ExportRequest, run=self.bench.run, **self.choices.fields())

    def _begin_choices(self) -> None:
        """Fill the choices from the run's own recipe."""
        section = frozen_section(self.bench.run, "export") if self.bench.run else {}
        try:
            asked = ExportSection.model_validate(section) if section else self.bench.recipe.export
        except ValidationError:  # another version of Burnish wrote it
            asked = self.bench.recipe.export
        model = frozen_section(self.bench.run, "model") if self.bench.run else {}
        self.choices.show_run(asked, quantized=model.get("quantize", "none") == "nf4")

    def _show_points(self) -> None:
        """Show what is predicted of each type, and what was measured of those that were made."""
        report = self.job.report if self.job is not None else None
        points = export_points(self._forecast, report)
        target = TargetSection.model_validate(frozen_section(self.bench.run, "target") if self.bench.run else {})
        self.sizes.show_points(points, self._forecast.target_bytes if self._forecast is not None else 0, target)
        self.sizes.chart.show_chosen(self.choices.types.chosen())

    def _choices_changed(self) -> None:
        self.sizes.chart.show_chosen(self.choices.types.chosen())
        self._show()
        self._forecast_timer.start()

    def _ask_forecast(self) -> None:
        """Ask the engine what the chosen files will take, while the choices can still change."""
        choices = self.choices
        if not (self.isVisible() and "sizes" in self.showing.parts and choices.is_complete):
            return
        fields = {name: choices.fields()[name] for name in ("quants", "name", "importance")}
        asked = f"{self.bench.run} {fields}"
        if asked == self._forecasts.about and self._forecasts.failure is None:
            return
        choices.show_forecast(None, tr("Finding out what that will take ..."))
        self.sizes.chart.show_message(tr("Finding out what each type would be ..."))
        self._forecasts.ask(ForecastRequest, about=asked, run=self.bench.run, **fields)

    def _forecast_found(self, result: Result) -> None:
        self._forecast = result.forecast
        self.choices.show_forecast(result.forecast)
        self._show_points()

    def _forecast_failed(self, failure: Failure) -> None:
        self.sizes.chart.show_message(tr("What each type would be is not known."))
        self.choices.show_forecast(None, tr("What it will take is not known. {what}").format(what=failure.what))

    def _hand_over(self, name: str, program: ProgramName) -> None:
        """Give a finished file to a program on this machine."""
        run, title = self.bench.run, PROGRAMS[program]

        def show(outcome: Outcome | None) -> None:
            self._handing_over.pop(request, None)
            self.activities_changed.emit(list(self._handing_over.values()))
            if run == self.bench.run:
                self.files.show_outcome(name, outcome)
                self._show_files()

        def taken(result: Result) -> None:
            show(Outcome(handed_over_text(program, result.detail), "success"))
            if program == "lm_studio" and run == self.bench.run:
                QDesktopServices.openUrl(QUrl("lmstudio://"))

        self.files.show_outcome(name, Outcome(tr("{program} is taking it ...").format(program=title), busy=True))
        self._show_files()
        request = self.client.send(
            HandOverRequest,
            run=run,
            file=name,
            program=program,
            owner=self,
            on_result=taken,
            on_failure=lambda failure: show(Outcome(f"{failure.what} {failure.remedy}".strip(), "error")),
            on_canceled=lambda: show(None),
        )
        self._handing_over[request] = Activity(
            self.key, run, name, tr("Giving to {program}").format(program=title), None,
            stop=lambda: self.client.cancel(request), outlives=False,
        )  # fmt: skip
        self.activities_changed.emit(list(self._handing_over.values()))

    def _cancel(self) -> None:
        self.command(CancelExportRequest, run=self.bench.run)
        self.progress.show_stopping()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Take over the export job of this run from the list of all runs."""
        self._knows_job = True
        summary = next((run for run in runs if Path(run.folder) == Path(self.bench.run)), None)
        if summary is not None:
            self._inspect_model(summary.model)
            job, known = summary.export, self.job
            # While it is running the follower knows more: this answer may be older than what it read.
            if not (job is not None and is_running(job) and known is not None and known.started == job.started):
                self._take_job(job)
        self._show()

    def _advanced(self, folder: str, job: ExportJob) -> None:
        if folder == self.bench.run and is_running(self.job):
            self._take_job(job)

    def _take_job(self, job: ExportJob | None) -> None:
        if job != self.job:
            before, self.job = self.job, job
            self._wants_more = self._wants_more and not is_running(before)
            self._follower.follow(self.bench.run if is_running(job) else "")
            self._show_job(before)

    def _inspect_model(self, path: str) -> None:
        """Ask the engine for the run's model, whose shape decides the file sizes."""
        if not path or path == self._model_path:
            return
        self._model_path = path
        if self.bench.model is not None and self.bench.model.path == path:
            self._model = self.bench.model
            self._show_sizes()
        else:
            self._models.ask(ModelRequest, path=path)

    def _model_found(self, result: Result) -> None:
        self._model = result.model
        self._show_sizes()

    def _show_sizes(self) -> None:
        facts = self._model
        if facts is None:
            self.choices.types.show_sizes({}, None)
            return
        spec = facts.spec
        fills = spec is None or (spec.hidden_size % _K_BLOCK == 0 and spec.intermediate_size % _K_BLOCK == 0)
        suggested = suggested_recipe(self.bench.suggestion)
        if suggested is not None and self.bench.model_path == facts.path and suggested.export.quants:
            recommended = suggested.export.quants[0]
        else:
            recommended = recommended_type(self.bench.target, facts.parameters, fills)
        self.choices.types.show_sizes(facts.file_bytes, recommended)

    def _show_job(self, before: ExportJob | None) -> None:
        job = self.job
        if job is not None and is_running(job):
            self.progress.show_job(job, importance=self.choices.importance.isChecked())
            if is_running(before):
                return  # nothing else moves
        over = notice(before, job)
        if over is not None and over.what:
            copy = [(tr("Copy details"), self._copy_details)] if over.kind == "error" else []
            self.banner(over.kind, over.what, over.remedy, copy)
        elif over is not None:
            self.clear_banner()
        self._read_run()

    def _copy_details(self) -> None:
        """Copy what there is to know about the failure as one text."""
        if self.job is not None:
            QGuiApplication.clipboard().setText(details_text(export_failure(self.bench.run, self.job)))

    def _bench_changed(self, name: str) -> None:
        if name == "run":
            self.job, self._knows_job, self._wants_more = None, False, False
            self._follower.follow("")
            self._model, self._model_path = None, ""
            self._forecasts.drop()
            self._models.drop()
            self._forecast = None
            self.choices.types.forget_sizes()
            self._begin_choices()
            self.choices.show_forecast(None)
            self.clear_banner()
            self._read_run()
            if self.isVisible():
                self.refresh_runs.emit()
        elif name in ("target", "suggestion"):
            self._show_sizes()  # what is recommended depends on them

    def _read_run(self) -> None:
        """Show what the run's folder holds now."""
        self._folder = read_run_folder(self.bench.run)
        job = self.job
        if job is not None and job.report is not None:
            self.fidelity.show_report(job.report, suggested=job.suggested, why=job.why)
        self.choices.offer(full_fine_tuning=self._folder.full_fine_tuning, exports=self._folder.exports)
        self._show_points()
        if self.bench.run:
            self._show_files()
        self._show()
        if "choices" in self.showing.parts:
            self._forecast_timer.start()

    def _show_files(self) -> None:
        """Show the files that are there, and what can be done with the best one."""
        export, best = RunPaths(Path(self.bench.run)).export, self.fidelity.leading
        is_proven = self.job is not None and self.job.report is not None and best in self._folder.exported
        self.files.show_files(export, self._folder, leading=best if is_proven else "")
        self.fidelity.acts.show_file(
            export / best if is_proven else None, self.files.programs, is_busy=self.files.is_busy
        )

    def _show(self) -> None:
        self.apply(
            page_state(
                self._folder,
                self.job,
                is_complete=self.choices.is_complete,
                is_typed=self.choices.is_typed,
                knows_job=self._knows_job,
                is_starting=self._starting.is_waiting,
                wants_more=self._wants_more,
            )
        )
        if self.primary is not None:  # what can be done with the files comes before further ones
            self.primary.set_look("secondary" if self.does == "choose" else "primary")
