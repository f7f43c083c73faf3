"""Is it safe to ship? Which files to make, how far that is, and the proof that they are the trained model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QButtonGroup, QGridLayout, QLabel, QLineEdit, QRadioButton, QVBoxLayout

from burnish_app.engine_client import EngineClient
from burnish_app.export_follower import ExportFollower
from burnish_app.fidelity_words import recommended_type
from burnish_app.pages.base import Page
from burnish_app.run_folder import RunFolder, look_into
from burnish_app.suggested import suggested_recipe
from burnish_app.theme import UNIT
from burnish_app.widgets.banner import BusyLine
from burnish_app.widgets.buttons import quiet, row, secondary
from burnish_app.widgets.card import Card, EmptyState
from burnish_app.widgets.fidelity_card import FidelityCard
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import ElidedLabel, body, caption
from burnish_app.widgets.type_choices import TypeChoices
from burnish_app.workbench import Workbench
from burnish_engine.contract.advice import ModelFacts
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.protocol import (
    CancelExportRequest,
    ExportJob,
    ExportRequest,
    Failure,
    ModelRequest,
    Result,
    RunSummary,
)

Kind = Literal["gguf", "ollama", "safetensors", "adapter"]
_KINDS: tuple[tuple[Kind, str, str], ...] = (
    ("gguf", "GGUF", "One file for llama.cpp, LM Studio and phone apps. Verified."),
    ("ollama", "Ollama", "A GGUF with the Modelfile that Ollama needs. Verified."),
    ("safetensors", "Safetensors", "The whole model in 16 bits, for transformers and vLLM."),
    ("adapter", "Adapter", "Only what was trained, a few MB, for PEFT. The base model is needed beside it."),
)
_WITH_TYPES = ("gguf", "ollama")
_K_BLOCK = 256  # values in a block of the K types (ggml's QK_K)


class ExportPage(Page):
    """Starts an export in a process of its own and shows what it reports."""

    key, title, question = "export", "Export", "Is it safe to ship?"
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._folder = RunFolder()
        self._model: ModelFacts | None = None
        self._model_path = ""
        self._job: ExportJob | None = None
        self._start_request = self._model_request = ""
        self._empty = Card()
        self._empty.body.addWidget(
            EmptyState(
                "export",
                "There is nothing trained to export yet.",
                "Go to training",
                lambda: self.go_to.emit("train"),
                detail="Files can be made from any run with a checkpoint. Runs lists them all.",
            )
        )
        self._busy = BusyLine("Exporting ...", can_cancel=True)
        self._busy.cancel.connect(self._cancel)
        self._busy_card = Card("Making and checking files")
        self._busy_card.body.addWidget(self._busy)
        self._busy_card.body.addWidget(caption("It goes on when this window closes."))
        self.fidelity = FidelityCard()
        self._files = Card("Files")
        self._file_lines = QVBoxLayout()
        self._files.body.addLayout(self._file_lines)
        self._files.corner.addWidget(quiet("Open the folder", self._reveal))
        self.kinds = QButtonGroup(self)
        self._kind_rows: dict[Kind, tuple[QRadioButton, QLabel]] = {}
        self._whole_hint = caption("This run trained every weight, so there is no adapter: Safetensors is all of it.")
        self.types = TypeChoices()
        self.types.changed.connect(self._show_state)
        self.name = QLineEdit()
        self.name.setPlaceholderText("Name of the files; empty: as the run")
        self.name.setAccessibleName("Name of the files")
        self._choices = self._make_choices()
        for widget in (self._empty, self._busy_card, self.fidelity, self._files, self._choices):
            self.column.addWidget(widget)
        self.set_primary("Export", self.start)
        bench.changed.connect(self._bench_changed)
        self.types.choose(list(bench.recipe.export.quants))
        self._follower = ExportFollower(self)
        self._follower.advanced.connect(self._advanced)
        self._show_run()

    def closing(self) -> None:
        """Follow nothing any more. The export goes on."""
        self._follower.follow("")

    def shown(self) -> None:
        """What the run has may have changed."""
        self._show_run()
        self.ask_runs.emit()

    @property
    def kind(self) -> Kind:
        """What shall be made."""
        return _KINDS[max(self.kinds.checkedId(), 0)][0]

    def start(self) -> None:
        """Start the export."""
        if self.client.is_open(self._start_request):
            return
        self.clear_banner()
        self._start_request = self.client.send(
            ExportRequest,
            run=self.bench.run,
            to=self.kind,
            quants=self.types.chosen() if self.kind in _WITH_TYPES else [],
            name=self.name.text().strip(),
            owner=self,
            on_result=self._started,
            on_failure=self._start_failed,
        )
        self._show_state()

    def _make_choices(self) -> Card:
        card = Card("Make files")
        kinds = QGridLayout()
        kinds.setHorizontalSpacing(3 * UNIT)
        kinds.setColumnStretch(1, 1)
        for number, (kind, name, words) in enumerate(_KINDS):
            button = QRadioButton(name)
            button.setAccessibleDescription(words)
            button.setChecked(number == 0)
            self.kinds.addButton(button, number)
            label = body(words, "muted")
            kinds.addWidget(button, number, 0)
            kinds.addWidget(label, number, 1)
            self._kind_rows[kind] = (button, label)
        card.body.addLayout(kinds)
        card.body.addWidget(self._whole_hint)
        self.kinds.idToggled.connect(lambda *_: self._show_state())
        self._type_hint = caption("Several files may be made at once; each is checked before it is called done.")
        card.body.addSpacing(UNIT)
        card.body.addWidget(self._type_hint)
        card.body.addWidget(self.types)
        card.body.addWidget(self.name)
        return card

    def _started(self, _result: Result) -> None:
        self.ask_runs.emit()
        self._show_state()

    def _start_failed(self, failure: Failure) -> None:
        self.failed(failure)
        self._show_state()

    def _cancel(self) -> None:
        self.client.send(CancelExportRequest, run=self.bench.run, owner=self, on_failure=self.failed)
        self._busy.set_progress("Stopping ...")

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Find this run's export among all runs."""
        summary = next((run for run in runs if Path(run.folder) == Path(self.bench.run)), None)
        if summary is None:
            return
        self._look_at_model(summary.model)
        job = summary.export
        known = self._job
        if job is not None and job.status == "running" and known is not None and known.started == job.started:
            return  # the follower knows more: this answer may be older than what it read
        self._take_job(job)

    def _advanced(self, folder: str, job: ExportJob) -> None:
        if folder == self.bench.run and self._job is not None and self._job.status == "running":
            self._take_job(job)

    def _take_job(self, job: ExportJob | None) -> None:
        if job != self._job:
            before, self._job = self._job, job
            self._follower.follow(self.bench.run if job is not None and job.status == "running" else "")
            self._show_job(before)

    def _look_at_model(self, path: str) -> None:
        """Ask for the run's model: its shape says how large the files become."""
        if not path or path == self._model_path:
            return
        self._model_path = path
        if self.bench.model is not None and self.bench.model.path == path:
            self._model = self.bench.model
            self._show_sizes()
            return
        self._model_request = self.client.send(ModelRequest, path=path, owner=self, on_result=self._model_found)

    def _model_found(self, result: Result) -> None:
        self._model = result.model
        self._show_sizes()

    def _show_sizes(self) -> None:
        facts = self._model
        if facts is None:
            self.types.show_sizes({}, None)
            return
        spec = facts.spec
        fills = spec is None or (spec.hidden_size % _K_BLOCK == 0 and spec.intermediate_size % _K_BLOCK == 0)
        suggested = suggested_recipe(self.bench.suggestion)
        if suggested is not None and self.bench.model_path == facts.path and suggested.export.quants:
            recommended = suggested.export.quants[0]
        else:
            recommended = recommended_type(self.bench.target, facts.parameters, fills)
        self.types.show_sizes(facts.file_bytes, recommended)

    def _show_job(self, before: ExportJob | None) -> None:
        job = self._job
        was_running = before is not None and before.status == "running"
        if job is not None and job.status == "running":
            self._busy.set_progress(job.what or "Starting ...", round(job.share * 1000), 1000)
            if was_running:
                return  # nothing else moves
        elif job is not None and job.status == "failed" and not (job.report and job.report.files):
            log = "What it last said is in export/job.log in the run's folder."
            self.banner("error", job.message or "The export failed.", log)
        elif job is not None and job.status == "canceled" and was_running:
            self.banner("info", "The export was stopped.", "Nothing unfinished was left behind.")
        elif job is not None and job.status == "finished" and was_running:
            self.clear_banner()
        self._show_run()

    def _bench_changed(self, name: str) -> None:
        if name == "run":
            self._job = None
            self._follower.follow("")
            self._model, self._model_path = None, ""
            self.clear_banner()
            self._show_run()
            if self.isVisible():
                self.ask_runs.emit()

    def _show_run(self) -> None:
        self._folder = look_into(self.bench.run)
        ready = self._folder.trained
        running = self._job is not None and self._job.status == "running"
        report = self._job.report if self._job else None
        self.set_subtitle(f"From the run {self._folder.name}." if ready else "")
        self._empty.setVisible(not ready)
        self._choices.setVisible(ready and not running)
        self._busy_card.setVisible(running)
        self.fidelity.setVisible(bool(report and report.files) and not running)
        self._files.setVisible(bool(self._folder.exported) and not running)
        if report is not None:
            self.fidelity.show_report(report)
        self._show_kinds()
        self._show_files()
        self._show_state()

    def _show_kinds(self) -> None:
        """Offer what the run can become: of a whole model there is no adapter."""
        whole = self._folder.whole
        for widget in self._kind_rows["adapter"]:
            widget.setVisible(not whole)
        self._whole_hint.setVisible(whole)
        if whole and self.kind == "adapter":
            self._kind_rows["safetensors"][0].setChecked(True)

    def _show_files(self) -> None:
        clear(self._file_lines)
        folder = RunPaths(Path(self.bench.run)).export if self.bench.run else Path()
        for name in self._folder.exported:
            path = str(folder / name)
            command = quiet("Copy for burnish", partial(_copy, f'burnish chat "{path}"'))
            command.setToolTip(f'Copies a command for the terminal that talks to this file: burnish chat "{path}"')
            llama = quiet("Copy for llama.cpp", partial(_copy, f'llama-cli -m "{path}"'))
            llama.setToolTip(f'llama-cli -m "{path}"')
            label = ElidedLabel(name)
            label.setToolTip(path)
            self._file_lines.addWidget(row(label, command, llama))
        self._file_lines.addWidget(row(secondary("Talk to it", lambda: self.go_to.emit("try_out")), None))

    def _show_state(self) -> None:
        starting = self.client.is_open(self._start_request)
        running = self._job is not None and self._job.status == "running"
        typed = self.kind in _WITH_TYPES
        chosen = self.types.chosen()
        self.types.setVisible(typed)
        self._type_hint.setVisible(typed)
        if self.primary is not None:
            self.primary.setEnabled(self._folder.trained and not running and not starting and bool(chosen or not typed))
            self.primary.setText("Exporting ..." if running or starting else "Export")
        if running or starting:
            self.set_status("busy")
        elif self._job is not None and self._job.status == "failed":
            self.set_status("attention")
        elif self._job is not None and self._job.status == "finished":
            self.set_status("done")
        else:
            self.set_status("ready" if self._folder.trained else "empty")

    def _reveal(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(RunPaths(Path(self.bench.run)).export)))


def _copy(text: str) -> None:
    QGuiApplication.clipboard().setText(text)
