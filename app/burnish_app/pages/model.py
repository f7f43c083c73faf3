"""The page Model: the embedded model, a folder, or a model of the catalog, ranked for the target device."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFileDialog, QSizePolicy, QVBoxLayout

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.banner import BusyLine
from burnish_app.widgets.basic.buttons import row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.drop import typed_path
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.page import Page
from burnish_app.widgets.basic.text import ElidedLabel, Value, body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout, FlowLayout, columns_layout
from burnish_app.widgets.model.catalog_view import CatalogView
from burnish_app.widgets.model.local_models_card import LocalModelsCard
from burnish_app.widgets.model.target_selector import TargetSelector
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.facts.advice import ModelFacts
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import ModelRequest
from burnish_engine.contract.units import file_size

_PATH_PX = 200  # width from which a path can be read
_EMBEDDED = "embedded"
_EMBEDDED_TEXT = tr("The one that comes with Burnish")


class ModelPage(Page):
    """Offers three sources of a base model and shows the facts about the chosen one."""

    key, title, question = "model", tr("Model"), tr("What do I start from?")
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._preferences = Preferences()
        self._request = ""
        self._asked_for = ""
        self.set_subtitle(tr("The model that will learn from your data. Smaller ones train faster and run anywhere."))
        self._chosen = Card(tr("Chosen model"), icon_name="model")
        self._busy = BusyLine(tr("Reading the model ..."))
        self._busy.hide()
        self._facts = QVBoxLayout()
        self._facts.setSpacing(UNIT)
        self._chosen.body.addWidget(self._busy)
        self._chosen.body.addLayout(self._facts)
        self.column.addWidget(self._chosen)
        self.target = TargetSelector()
        self.target.chosen.connect(bench.set_target)
        self.catalog = CatalogView(client)
        self.catalog.chosen.connect(self.choose)
        self.catalog.failed.connect(self.failed)
        self.local = LocalModelsCard(client)
        self.local.chosen.connect(self.choose)
        self.folder = QComboBox()
        self.column.addLayout(self._make_ways(), 1)
        self.set_primary(tr("Next: add data"), lambda: self.go_to.emit("data"), "next")
        bench.changed.connect(self._bench_changed)
        self._show_choice()

    def shown(self) -> None:
        """Rank the catalog for the memory that is free now, and inspect the chosen model if its facts are unknown."""
        self.target.show_target(self.bench.target)
        self.catalog.show_for(self.bench.target)
        self.local.show_for(self.bench.target)
        self._inspect_model()

    def take_drop(self, paths: list[str], *, instead: bool = False) -> None:
        """Choose the model whose folder was dropped."""
        self.choose(paths[0])

    def choose(self, path: str) -> None:
        """Choose the base model.

        Args:
            path: "embedded", a folder, or the catalog name of a fetched model.
        """
        self.clear_banner()
        self._asked_for = ""
        self.bench.set_model_path(path)
        self._inspect_model()

    def _make_ways(self) -> QVBoxLayout:
        embedded = Card(tr("Comes with Burnish"), tr("SmolLM2 135M. Works now, without a network."), icon_name="box")
        use_embedded = secondary(tr("Use it"), lambda: self.choose(_EMBEDDED))
        promise = caption(tr("Learns your data on any computer in minutes."))
        promise.setWordWrap(False)
        embedded.body.addWidget(row(use_embedded, promise, None))
        folder = Card(
            tr("A folder on this machine"),
            tr("Any drive. It holds config.json, safetensors and a tokenizer."),
            icon_name="folder",
        )
        self.folder.setEditable(True)
        self.folder.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.folder.setAccessibleName(tr("Folder of a model"))
        self.folder.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.folder.addItems(self._preferences.recent("model"))
        self.folder.setCurrentIndex(-1)
        edit = self.folder.lineEdit()
        assert edit is not None  # the box is editable
        edit.setPlaceholderText(tr("Paste or drop a folder"))
        edit.returnPressed.connect(self._use_folder)
        self.folder.activated.connect(lambda _index: self._use_folder())
        self.folder.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        use, browse = secondary(tr("Use it"), self._use_folder), secondary(tr("Browse ..."), self._browse, "folder")
        self.folder.setMinimumWidth(_PATH_PX)
        line = FlowLayout()
        for widget in (self.folder, row(use, browse)):
            line.addWidget(widget)
        folder.body.addLayout(line)
        catalog = Card(tr("From the catalog, ranked for training here"), icon_name="layers")
        catalog.corner.addWidget(self.target)
        catalog.body.addWidget(self.catalog)
        for card in (embedded, folder):
            card.body.addStretch(1)
        ways = QVBoxLayout()
        ways.setSpacing(GAP_PX)
        ways.addLayout(columns_layout((embedded, folder), GAP_PX, even=True, fill=True))
        ways.addWidget(self.local)
        ways.addWidget(catalog, 1)
        return ways

    def _use_folder(self) -> None:
        path = typed_path(self.folder.currentText())
        if path:
            self.choose(path)

    def _browse(self) -> None:
        dialog = QFileDialog(self, tr("Choose a model's folder"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.choose)
        dialog.open()

    def _inspect_model(self) -> None:
        path = self.bench.model_path
        if self.bench.model is not None or path == self._asked_for:
            return
        self.client.cancel(self._request)
        self._asked_for = path
        self._busy.show()
        self.set_status("busy")
        self._request = name = self.client.send(
            ModelRequest,
            path=path,
            owner=self,
            on_result=lambda result: self._found(name, result),
            on_failure=lambda failure: self._inspect_failed(name, failure),
        )

    def _cancel_inspection(self) -> None:
        """Cancel the request about the former model and close its banner."""
        self.client.cancel(self._request)
        self._request = self._asked_for = ""
        self._busy.hide()
        self.clear_banner()

    def _found(self, name: str, result: Result) -> None:
        if name != self._request:
            return
        self._request = ""
        self._busy.hide()
        self.bench.set_model(result.model)
        path = self.bench.model_path
        if path != _EMBEDDED and Path(path).is_absolute():
            self._preferences.add_recent("model", path)
            if self.folder.findText(path) < 0:
                self.folder.insertItem(0, path)

    def _inspect_failed(self, name: str, failure: Failure) -> None:
        if name != self._request:
            return
        self._busy.hide()
        self._asked_for = ""
        self.set_status("attention")
        if self.primary is not None:
            self.primary.setText(tr("Choose a model first"))
        self.banner(
            "error", failure.what, failure.remedy, [(tr("Use the embedded model"), lambda: self.choose(_EMBEDDED))]
        )

    def _bench_changed(self, name: str) -> None:
        if name == "model_path":
            self._cancel_inspection()
            self._show_choice()
        elif name == "model":
            self._show_choice()
            if self.isVisible():
                self._inspect_model()
        elif name == "target":
            self.target.show_target(self.bench.target)
            if self.isVisible():
                self.catalog.show_for(self.bench.target)

    def _show_choice(self) -> None:
        facts = self.bench.model
        clear(self._facts)
        if self.primary is not None:
            self.primary.setEnabled(facts is not None)
            self.primary.setText(tr("Next: add data") if facts is not None else tr("Reading the model ..."))
        if facts is None:
            self._chosen.set_heading(tr("Chosen model"))
            path = self.bench.model_path
            self._facts.addWidget(ElidedLabel(_EMBEDDED_TEXT if path == _EMBEDDED else path, tone="muted"))
            self.set_status("empty")
            return
        self.set_status("done")
        self._chosen.set_heading(facts.name)
        self._facts.addLayout(_figures(facts))
        if facts.folder:
            self._facts.addWidget(ElidedLabel(facts.folder, tone="muted"))
        if facts.note:
            self._facts.addWidget(caption(facts.note))
        for warning in facts.warnings:
            self._facts.addWidget(body(f"!  {warning}", "warning"))
        self.catalog.select(facts.path)


def _figures(facts: ModelFacts) -> ColumnsLayout:
    weights = count_text(facts.parameters) if facts.parameters else "unknown"
    figures = [
        (tr("Weights"), weights, "", tr("Numbers it is made of.")),
        (tr("On disk"), file_size(facts.bytes), "", ""),
        (
            tr("Reads up to"),
            f"{facts.max_context:,}" if facts.max_context else "unknown",
            "tokens",
            tr("Its context length."),
        ),
        (tr("Made for"), "chat" if facts.chat else tr("plain text"), "", tr("Whether it has a chat template.")),
        (tr("Family"), facts.family, "", ""),
        (tr("License"), facts.license or tr("not stated"), "", ""),
    ]
    values = []
    for label, figure, unit, hint in figures:
        values.append(Value(label, unit, hint, large=False))
        values[-1].set(figure)
    return columns_layout(values, 5 * UNIT)
