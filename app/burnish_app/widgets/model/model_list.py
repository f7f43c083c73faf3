"""The one list of models: of this machine, the catalog and the hub, searched, filtered, and judged for the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QBoxLayout, QCheckBox, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.downloads_follower import DownloadsFollower
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.item_models.listed_models import (
    ListedModel,
    ListedModelsTableModel,
    Scope,
    chosen,
    merge,
)
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.drop import typed_path
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import body
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.model.model_details import ModelDetails
from burnish_app.widgets.page.banner import BusyLine
from burnish_engine.contract.facts.advice import FoundOnHub, LocalModel, RankedModel
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import LocalModelsRequest, ModelsRequest, SearchHubRequest

_DETAILS_PX = 336
_LIST_PX = 480  # at least, to have the details beside it
_SEARCH_PX = 240
_WIDTHS_PX = (168, 72, 124, 76, 112)
_FIRST_PX = 152
_DROP_COLUMNS = ((1,), (3,), (4,))  # the details say the same
_NARROW = (1, 2, 3, 4)
_ROW_PX = 4 * UNIT
_LEAST_ROWS, _MOST_ROWS = 5, 12  # rows shown where the details are below the table
_SCOPES = (("all", tr("All")), ("here", tr("On this machine")), ("catalog", tr("Catalog")), ("hub", tr("Hub")))


class ModelList(QWidget):
    """Lists models, judged for training on this machine and running on the target.

    Args:
        client: connection to the engine.
        bench: target and data that models are judged for.
        downloads: queue of downloads.

    Attributes:
        folders: further folders of models that are listed.
        rows: facts of the rows that models are judged for, counted with any model's tokenizer; None: usual rows.
        used: signal with what to write into the recipe for the model that shall be used, or a folder that was typed.
        failed: signal with a `Failure` of listing.
    """

    used = Signal(str)
    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench, downloads: DownloadsFollower) -> None:
        super().__init__()
        self._client, self._bench, self._downloads = client, bench, downloads
        self.folders: Sequence[str] = ()
        self.rows: DatasetFacts | None = None
        self._ranked: list[RankedModel] = []
        self._local: list[LocalModel] = []
        self._hub: list[FoundOnHub] = []
        self._rows: list[ListedModel] = []
        self._asked: object = None
        self._catalog = Question(client, self, self._ranked_here, self._not_listed, changed=self._merge)
        self._here = Question(client, self, self._local_here, self._not_listed, changed=self._merge)
        self._selected = ""
        self._searched = ""
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search, or paste a folder"))
        self.search.setClearButtonEnabled(True)
        self.search.setAccessibleName(tr("Search the models, or a folder"))
        self.search.setMinimumWidth(_SEARCH_PX)
        self.search.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.search.textChanged.connect(lambda _text: self._show())
        self.search.returnPressed.connect(self._entered)
        self.scope = Segmented(tr("Models"), _SCOPES)
        self.scope.choose("all")
        self.scope.chosen.connect(self._scope_chosen)
        self.fitting = QCheckBox(tr("Only what fits"))
        self.fitting.toggled.connect(lambda _on: self._show())
        self.models = ListedModelsTableModel()
        self.table = FittingTable(
            self.models,
            tr("Models, best first"),
            _WIDTHS_PX,
            first_min_px=_FIRST_PX,
            drop_columns=_DROP_COLUMNS,
            narrow=_NARROW,
            row_px=_ROW_PX,
            head_px=_ROW_PX,
        )
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._show_details())
        self.details = ModelDetails()
        self.table.doubleClicked.connect(lambda *_: self.details.act())
        enter = QShortcut(QKeySequence(Qt.Key.Key_Return), self.table)
        enter.setContext(Qt.ShortcutContext.WidgetShortcut)  # elsewhere Return has another meaning
        enter.activated.connect(self.details.act)
        self.details.used.connect(self.used)
        self.details.wanted.connect(downloads.start)
        downloads.changed.connect(lambda _all: self._show_details())
        downloads.arrived.connect(self._arrived)
        self._busy = BusyLine(tr("Searching the hub ..."), can_cancel=True)
        self._on_hub = Question(
            client, self, self._hub_here, self._not_searched, progressed=self._busy.set_progress, changed=self._merge
        )
        self._busy.cancel.connect(self._stop_searching)
        self._busy.hide()
        self._empty = body("", "muted")
        self.ask_hub = secondary(tr("Search the hub"), self.search_hub)
        self._nothing = QWidget()
        fill(
            QVBoxLayout(self._nothing),
            self._empty,
            (self.ask_hub, 0, Qt.AlignmentFlag.AlignLeft),
            None,
            spacing_px=UNIT,
        )
        self._nothing.hide()
        self._lay_out()

    def _lay_out(self) -> None:
        filters = fill(FlowLayout(), self.search, self.scope, self.fitting)
        listed = fill(QVBoxLayout(), self._busy, self.table, self._nothing, spacing_px=UNIT)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._line.setSpacing(3 * UNIT)
        self._line.addLayout(listed, 1)
        self._line.addWidget(self.details)
        fill(QVBoxLayout(self), filters, (self._line, 1), spacing_px=UNIT + 4)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: as wide as the details, which go below the list if there is no room beside it."""
        return QSize(_DETAILS_PX, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the details beside the list, or below it if the view is narrow."""
        super().resizeEvent(event)
        has_room = self.width() >= scaled(_LIST_PX) + self._line.spacing() + _DETAILS_PX
        self._line.setDirection(QBoxLayout.Direction.LeftToRight if has_room else QBoxLayout.Direction.TopToBottom)
        self.details.setFixedWidth(_DETAILS_PX if has_room else self.width())
        self._fit_table()

    def _fit_table(self) -> None:
        """Show as many rows as there are, within bounds: a table that scrolls within a page that scrolls is a trap."""
        beside = self._line.direction() == QBoxLayout.Direction.LeftToRight
        rows = _LEAST_ROWS if beside else min(max(self.models.rowCount(), _LEAST_ROWS), _MOST_ROWS)
        self.table.hold_rows(rows)

    def refresh(self, *, anew: bool = False) -> None:
        """List the models for the target and the rows, unless nothing changed since.

        Args:
            anew: whether to look again in any case.
        """
        rows = self.rows and (self.rows.files, self.rows.train_rows, self.rows.tokens)
        now = (self._client.generation, self._bench.target, self._bench.data_files, rows, self.folders)
        if now == self._asked and not anew:
            return
        self._asked = now
        self._ask(self._catalog, ModelsRequest)
        self._ask(self._here, LocalModelsRequest, folders=list(self.folders))

    def search_hub(self) -> None:
        """Search the hub for the words in the field. The network is used for nothing else."""
        words = self.search.text().strip()
        if not words:
            return
        self.scope.choose("hub")
        self._busy.set_progress(tr("Searching the hub ..."))
        self._hub, self._searched = [], words
        self._ask(self._on_hub, SearchHubRequest, query=words[:200])
        self._merge()

    def select(self, name: str) -> None:
        """Select a model by its recipe path or its name; it is selected later if it is not listed yet."""
        self._selected = name
        number = self.models.row_of(name)
        if number >= 0:
            self.table.selectRow(number)

    def selected(self) -> ListedModel | None:
        """Return the model whose details are shown; None if there is none."""
        return self.models.at(self.table.currentIndex().row())

    def _ask(self, question: Question, request: type[Any], **fields: Any) -> None:
        recipe = self._bench.recipe_toml if self._bench.data_files else ""
        question.ask(request, target=self._bench.target, recipe=recipe, dataset=self.rows, **fields)

    def _ranked_here(self, result: Result) -> None:
        self._ranked = result.models or []

    def _local_here(self, result: Result) -> None:
        self._local = result.local_models or []

    def _hub_here(self, result: Result) -> None:
        self._hub = result.hub_models or []

    def _not_listed(self, failure: Failure) -> None:
        self._asked = None  # asked again when the page is next shown
        self.failed.emit(failure)

    def _not_searched(self, failure: Failure) -> None:
        self._searched = ""
        self.failed.emit(failure)

    def _stop_searching(self) -> None:
        self._searched = ""
        self._on_hub.drop()

    def _merge(self) -> None:
        self._rows = merge(self._ranked, self._local, self._hub)
        self._show()

    def _show(self) -> None:
        """Show what the filters leave, with the same model selected."""
        scope = cast("Scope", self.scope.value)
        current = self.selected()
        words = "" if typed_folder(self.search.text()) else self.search.text()
        shown = chosen(self._rows, scope, words, only_fitting=self.fitting.isChecked())
        self.models.show(shown)
        self._fit_table()
        self.select(current.path or current.name if current else self._selected)
        if self.selected() is None and shown:
            self.table.selectRow(0)
        self._show_nothing(scope, words.strip(), any_shown=bool(shown))
        self._show_details()

    def _show_nothing(self, scope: Scope, query: str, *, any_shown: bool) -> None:
        """Say why nothing is shown, and offer to search the hub for words that it was not asked for."""
        searching = self._on_hub.is_waiting
        self._busy.setVisible(searching)
        offers = bool(query) and query != self._searched and not searching
        if any_shown or searching:
            text = ""
        elif scope != "hub" and not self._rows:
            text = tr("The list is being read ...") if self._catalog.is_waiting else tr("No model is known.")
        elif scope != "hub":
            text = tr("No model of the list is like that.")
        elif not query:
            text = tr("Type a name and press Enter: the hub is searched only when asked.")
        else:
            text = "" if offers else tr("The hub has nothing under these words.")
        for widget in (self.table, self.details):
            widget.setVisible(any_shown or searching)
        self._empty.setText(text)
        self._empty.setVisible(bool(text))
        self.ask_hub.setVisible(offers)
        self._nothing.setVisible(bool(text) or offers)

    def _show_details(self) -> None:
        model = self.selected()
        self.details.show_model(model, self._downloads.of(model.name) if model else None)

    def _scope_chosen(self, scope: str) -> None:
        words = self.search.text().strip()
        if scope == "hub" and words not in ("", self._searched):
            self.search_hub()
        self._show()

    def _entered(self) -> None:
        """Use the folder that was typed, or search the hub for the words."""
        folder = typed_folder(self.search.text())
        if folder:
            self.search.clear()
            self.used.emit(folder)
        else:
            self.search_hub()

    def _arrived(self, name: str) -> None:
        self._selected = name
        self.refresh(anew=True)


def typed_folder(text: str) -> str:
    """Return the absolute folder that a typed text names; empty where it is no path of a file system."""
    plain = text.strip().strip('"')
    is_path = plain[:1] in ("/", "~", "\\") or plain[1:3] in (":\\", ":/") or plain.startswith(("file:", "./", "../"))
    return typed_path(text) if plain and is_path else ""
