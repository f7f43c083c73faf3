"""The page Model: the chosen model, the adapter to begin with, the downloads, and one list of all models."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QVBoxLayout

from burnish_app.engine.downloads_follower import DownloadsFollower
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.page_states.model import page_state
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import PathLabel, Value, body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout, columns_layout
from burnish_app.widgets.model.downloads_card import DownloadsCard
from burnish_app.widgets.model.model_list import ModelList
from burnish_app.widgets.model.start_line import CONFIG_FILE, StartLine
from burnish_app.widgets.model.target_selector import TargetSelector
from burnish_app.widgets.page.banner import BannerAction, BusyLine
from burnish_app.widgets.page.page import Page
from burnish_app.wording.activity import download_activity
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.facts.advice import ModelFacts, ModelIntegrity
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import RunPaths, is_model_name
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import CheckFilesRequest, ModelRequest
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.units import file_size

_EMBEDDED = "embedded"
_EMBEDDED_TEXT = tr("The one that comes with Burnish")


class ModelPage(Page):
    """Offers all models in one list and shows the facts about the chosen one, once its files were checked."""

    key, title, question = "model", tr("Model"), tr("What do I start from?")
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._preferences = Preferences()
        self._reading = Question(client, self, self._found, self._unreadable, changed=self._show)
        self._checking = Question(
            client,
            self,
            self._checked,
            self._damaged,
            progressed=lambda file, *step: self._busy.set_progress(tr("Checking {file}").format(file=file), *step),
            changed=self._show,
        )
        self._intact = ""  # path of the model whose files were checked
        self._integrity: ModelIntegrity | None = None
        self.downloads = DownloadsFollower(client, self)
        self.downloads.failed.connect(self.failed)
        self.downloads.changed.connect(self._show_activities)
        self._chosen = Card(tr("Chosen model"), icon_name="model")
        self.checked = Pill()
        self._chosen.corner.addWidget(self.checked)
        self._busy = BusyLine(tr("Reading the model ..."))
        self.parts["busy"] = self._busy
        self._facts = QVBoxLayout()
        self._facts.setSpacing(UNIT)
        self.start = StartLine(client, bench)
        self.start.failed.connect(self.failed)
        self._chosen.body.addWidget(self._busy)
        self._chosen.body.addLayout(self._facts)
        self._chosen.body.addWidget(self.start)
        self.queue = DownloadsCard(self.downloads)
        self.queue.used.connect(self.choose)
        for card in (self._chosen, self.queue):
            self.column.addWidget(card)
        self.column.addWidget(self._make_list(), 1)
        self.set_primary(tr("Next: add data"), lambda: self.go_to.emit("data"), "next")
        bench.changed.connect(self._bench_changed)
        self._show_choice()
        QTimer.singleShot(0, self, self.downloads.ask)  # some may be running since the window was last open

    def _make_list(self) -> Card:
        card = Card(tr("All models"), icon_name="layers")
        card.setProperty(PLACE_PROPERTY, "models.md#one-list")
        self.judged_for = caption("")
        self.target = TargetSelector()
        self.target.chosen.connect(self.bench.set_target)
        browse = secondary(
            tr("Open a folder ..."),
            lambda: self.ask_folder(tr("Choose a model's folder"), lambda folder: self.take_drop([folder])),
            "folder",
        )
        browse.setToolTip(tr("A folder with config.json, safetensors and a tokenizer. It can be dropped here as well."))
        for widget in (self.target, browse):
            card.corner.addWidget(widget)
        self.models = ModelList(self.client, self.bench, self.downloads)
        self.models.used.connect(self.choose)
        self.models.failed.connect(self.failed)
        card.body.addWidget(self.judged_for)
        card.body.addWidget(self.models, 1)
        return card

    def shown(self) -> None:
        """List the models for the memory that is free now, and inspect the chosen one if its facts are unknown."""
        self.target.show_target(self.bench.target)
        self.downloads.ask()
        self._list_models(anew=True)
        self._inspect_model()

    def _show_activities(self, downloads: list[Download]) -> None:
        going = [one for one in downloads if one.status in ("queued", "running")]
        self.activities_changed.emit([download_activity(one) for one in going])

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Offer the runs' adapters to continue from."""
        self.start.show_runs(runs)

    def take_drop(self, paths: list[str], *, instead: bool = False) -> None:
        """Choose the model whose folder was dropped, or continue from the adapter or run in it."""
        folder = Path(paths[0])
        if is_file(folder / CONFIG_FILE) or is_file(RunPaths(folder).adapter / CONFIG_FILE):
            self.clear_banner()
            self.start.choose(paths[0])
        else:
            self.choose(paths[0])

    def choose(self, path: str) -> None:
        """Choose the base model.

        Args:
            path: "embedded", a folder, or the name of a fetched model.
        """
        self.clear_banner()
        self.bench.set_model_path(path, keep_start=self.start.seeks_model)
        self._inspect_model()

    def _list_models(self, *, anew: bool = False) -> None:
        """List the models, unless nothing changed that they are judged for.

        Args:
            anew: whether to judge them in any case, because free memory may have changed.
        """
        rows = self.bench.last_dataset  # another model's tokenizer may have counted it
        self.judged_for.setText(
            tr("Judged for your {rows:,} rows, with this machine's memory as it is free now.").format(
                rows=rows.train_rows + rows.validation_rows
            )
            if rows is not None
            else tr("Judged for usual rows until you add data, with this machine's memory as it is free now.")
        )
        self.models.rows = rows
        self.models.folders = self._preferences.recent("model")
        self.models.refresh(anew=anew)

    def _inspect_model(self) -> None:
        path = self.bench.model_path
        if self.bench.model is None:
            if not self._reading.is_waiting:
                self._checking.drop()
                self._busy.set_progress(tr("Reading the model ..."))
                self._reading.ask(ModelRequest, path=path)
        elif self._intact != path and not self._checking.is_waiting:
            # Its files are compared with their published checksums before the tick; what was read before is known.
            self._busy.set_progress(tr("Checking the files ..."))
            self._checking.ask(CheckFilesRequest, about=path, path=path)

    def _cancel_inspection(self) -> None:
        """Drop the questions about the former model and close its banner."""
        self._intact = ""
        for question in (self._reading, self._checking):
            question.drop()
        self.clear_banner()

    def _found(self, result: Result) -> None:
        self.bench.set_model(result.model)
        path = self.bench.model_path
        if path != _EMBEDDED and Path(path).is_absolute():
            self._preferences.add_recent("model", path)
        self._inspect_model()

    def _checked(self, result: Result) -> None:
        self._intact, self._integrity = self._checking.about, result.integrity

    def _unreadable(self, failure: Failure, *again: BannerAction) -> None:
        embedded = (tr("Use the one that comes with Burnish"), lambda: self.choose(_EMBEDDED))
        self.banner("error", failure.what, failure.remedy, [*again, embedded])

    def _damaged(self, failure: Failure) -> None:
        """Take the model back: the facts are those of a damaged one."""
        path = self.bench.model_path
        self.bench.set_model(None)
        again = [(tr("Fetch it again"), lambda: self._fetch_again(path))] if is_model_name(path) else []
        self._unreadable(failure, *again)

    def _fetch_again(self, name: str) -> None:
        self.clear_banner()
        self.downloads.start(name)

    def _bench_changed(self, name: str) -> None:
        if name == "model_path":
            self._cancel_inspection()
            self._show_choice()
        elif name == "model":
            self._show_choice()
            if self.isVisible() and self._checking.failure is None:
                self._inspect_model()
        elif name == "target":
            self.target.show_target(self.bench.target)
            if self.isVisible():
                self._list_models()

    def _show(self) -> None:
        """Show how far the model is known."""
        state = page_state(
            self._integrity,
            is_known=self.bench.model is not None,
            is_intact=self._intact == self.bench.model_path,
            is_busy=self._reading.is_waiting or self._checking.is_waiting,
            has_failed=self._reading.failure is not None or self._checking.failure is not None,
        )
        self.apply(state)
        text, tone, hint = state.checked
        self.checked.set(text, tone)
        self.checked.setToolTip(hint)

    def _show_choice(self) -> None:
        """Show the facts of the chosen model."""
        facts, path = self.bench.model, self.bench.model_path
        clear(self._facts)
        self._show()
        self._chosen.set_heading(facts.name if facts is not None else tr("Chosen model"))
        if facts is None:
            self._facts.addWidget(PathLabel(_EMBEDDED_TEXT if path == _EMBEDDED else path, tone="muted"))
            return
        self._facts.addLayout(_figures(facts))
        if facts.folder:
            self._facts.addWidget(PathLabel(facts.folder, tone="muted"))
        if facts.note:
            self._facts.addWidget(caption(facts.note))
        for warning in facts.warnings:
            self._facts.addWidget(body(f"!  {warning}", "warning"))
        self.models.select(facts.path)


def _figures(facts: ModelFacts) -> ColumnsLayout:
    weights = count_text(facts.parameters) if facts.parameters else tr("unknown")
    figures = [
        (tr("Weights"), weights, "", tr("Numbers it is made of.")),
        (tr("On disk"), file_size(facts.bytes), "", ""),
        (
            tr("Reads up to"),
            f"{facts.max_context:,}" if facts.max_context else tr("unknown"),
            "tokens",
            tr("Its context length."),
        ),
        (tr("Made for"), tr("chat") if facts.chat else tr("plain text"), "", tr("Whether it has a chat template.")),
        (tr("Family"), facts.family, "", ""),
        (tr("License"), facts.license or tr("not stated"), "", ""),
    ]
    values = []
    for label, figure, unit, hint in figures:
        values.append(Value(label, unit, hint, large=False))
        values[-1].set(figure)
    return columns_layout(values, 5 * UNIT)
