"""The view of the model catalog: search, ranked list, details of the selected model, and fetching it."""

from __future__ import annotations

from PySide6.QtCore import QSize, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.item_models.ranked_models import RankedModelsTableModel
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.banner import BusyLine
from burnish_app.widgets.basic.buttons import row, secondary
from burnish_app.widgets.basic.layouts import clear, fact_line
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import body, caption, heading, set_tone
from burnish_app.wording.numbers import speed_text
from burnish_engine.contract.facts.advice import RankedModel
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import FetchRequest, ModelsRequest
from burnish_engine.contract.units import file_size, memory_size

_SEARCH_AFTER_MS = 200
_DETAILS_PX = 336
_LIST_PX = 480  # at least, to have the details beside it
_FACT_PX = 96
_WIDTHS_PX = (136, 72, 124, 88, 108, 72)
_DROP_COLUMNS = ((4,), (3,))  # license and size of the file: the details say the same


class CatalogView(QWidget):
    """Shows the catalog, ranked for training here and running on a target.

    Attributes:
        chosen: signal with the name of a model that is on this machine and shall be used.
        failed: signal with a `protocol.Failure` that is not about fetching.
    """

    chosen = Signal(str)
    failed = Signal(object)

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._client = client
        self._target = TargetSection()
        self._asked = ""
        self._fetch_request = ""
        self._fetching = ""
        self._selected = ""
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search: a name, a family, or a purpose such as code"))
        self.search.setClearButtonEnabled(True)
        self.search.setAccessibleName(tr("Search the catalog"))
        self._timer = QTimer(self, singleShot=True, interval=_SEARCH_AFTER_MS)
        self._timer.timeout.connect(self._ask)
        self.search.textEdited.connect(self._search_edited)
        self.models = RankedModelsTableModel()
        self.table = FittingTable(
            self.models,
            tr("Catalog of models, best first"),
            _WIDTHS_PX,
            first_min_px=_WIDTHS_PX[0],
            drop_columns=_DROP_COLUMNS,
        )
        self.table.setMinimumHeight(26 * UNIT)
        self.table.verticalHeader().setDefaultSectionSize(4 * UNIT)
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._show_details())
        self.table.doubleClicked.connect(lambda *_: self._act())
        self._empty = caption("")
        self._details = QVBoxLayout()
        self._details.setSpacing(UNIT // 2)
        self.token = QLineEdit()
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText(tr("Access token: used once, never stored"))
        self.token.setAccessibleName(tr("Access token"))
        self.token.hide()
        self._progress = BusyLine("", can_cancel=True)
        self._progress.cancel.connect(lambda: self._client.cancel(self._fetch_request))
        self._progress.hide()
        self.message = body("", "error")
        self.message.hide()
        self._title = heading("")
        self._title.setWordWrap(False)
        self.action = secondary(tr("Fetch"), self._act)
        self.action.setEnabled(False)
        self._beside = QWidget()
        listed, beside = QVBoxLayout(), QVBoxLayout(self._beside)
        beside.setContentsMargins(0, 0, 0, 0)
        listed.setSpacing(UNIT)
        for widget in (self.search, self.table, self._empty):
            listed.addWidget(widget)
        beside.setSpacing(UNIT)
        beside.addWidget(row(self._title, None, self.action))
        beside.addWidget(self.token)
        beside.addWidget(self.message)
        beside.addWidget(self._progress)
        beside.addLayout(self._details)
        beside.addStretch(1)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._line.setContentsMargins(0, 0, 0, 0)
        self._line.setSpacing(3 * UNIT)
        self._line.addLayout(listed, 1)
        self._line.addWidget(self._beside)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: as wide as the details, which go below the list if there is no room beside it."""
        return QSize(_DETAILS_PX, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the details beside the list, or below it if the view is narrow."""
        super().resizeEvent(event)
        has_room = self.width() >= _LIST_PX + self._line.spacing() + _DETAILS_PX
        self._line.setDirection(QBoxLayout.Direction.LeftToRight if has_room else QBoxLayout.Direction.TopToBottom)
        self._beside.setFixedWidth(_DETAILS_PX if has_room else self.width())

    def show_for(self, target: TargetSection) -> None:
        """Rank the catalog for a target."""
        self._target = target
        self._ask()

    def select(self, name: str) -> None:
        """Select a model by its name; it is selected later if it is not listed yet."""
        self._selected = name
        number = self.models.row_of(name)
        if number >= 0:
            self.table.selectRow(number)

    def selected(self) -> RankedModel | None:
        """Return the model whose details are shown; None if there is none."""
        return self.models.at(self.table.currentIndex().row())

    def _search_edited(self, _text: str) -> None:
        self._timer.start()

    def _ask(self) -> None:
        self._client.cancel(self._asked)
        self._asked = name = self._client.send(
            ModelsRequest,
            query=self.search.text().strip(),
            target=self._target,
            owner=self,
            on_result=lambda result: self._found(name, result),
            on_failure=self.failed.emit,
        )

    def _found(self, name: str, result: Result) -> None:
        if name != self._asked:
            return
        current = self.selected()
        self.models.show(result.models or [])
        self._empty.setText("" if result.models else tr("No model of the catalog holds these words."))
        self._empty.setVisible(not result.models)
        self.select(current.model.name if current else self._selected)
        if self.selected() is None and result.models:
            self.table.selectRow(0)
        self._show_details()

    def _show_details(self) -> None:
        ranked = self.selected()
        clear(self._details)
        self.message.hide()
        self.action.setEnabled(ranked is not None and not self._fetching)
        self.token.setVisible(bool(ranked and ranked.model.gated and not ranked.here))
        self._title.setText(ranked.model.title if ranked else "")
        if ranked is None:
            self.action.setText(tr("Fetch"))
            return
        model = ranked.model
        self._details.addWidget(body(ranked.reason))
        self._details.addWidget(body(model.good_for, "muted"))
        method = "QLoRA" if ranked.method == "qlora" else "LoRA"
        training = tr("{train_bytes} ({method}), about {tokens_per_s}").format(
            train_bytes=memory_size(ranked.train_bytes), method=method, tokens_per_s=speed_text(ranked.tokens_per_s)
        )
        running = tr("{run_bytes} with a {file_bytes} {quant} file").format(
            run_bytes=memory_size(ranked.run_bytes), file_bytes=file_size(ranked.file_bytes), quant=ranked.quant
        )
        terms = f"{model.license}. {model.license_note}".strip(". ") + "."
        gated = tr(" Its page asks you to sign in and accept its terms first.") if model.gated else ""
        for name, text in (
            (tr("To train here"), training),
            (tr("To run there"), running),
            (tr("License"), f"{terms}{gated}"),
        ):
            self._details.addWidget(fact_line(name, text, name_px=_FACT_PX))
        if model.unchecked and not ranked.here:
            self._details.addWidget(body(tr("Not confirmed: {what}").format(what=model.unchecked), "warning"))
        if not model.exports:
            self._details.addWidget(body(tr("This version cannot export it to GGUF."), "warning"))
        size = file_size(ranked.download_bytes)
        self.action.setText(tr("Use this model") if ranked.here else tr("Fetch ({size})").format(size=size))

    def _act(self) -> None:
        ranked = self.selected()
        if ranked is None or self._fetching:
            return
        if ranked.here:
            self.chosen.emit(ranked.model.name)
            return
        name = ranked.model.name
        self._fetching = name
        self.message.hide()
        self.action.setEnabled(False)
        self._progress.set_progress(tr("Fetching {title} ...").format(title=ranked.model.title))
        self._progress.show()
        self._fetch_request = self._client.send(
            FetchRequest,
            name=name,
            token=self.token.text().strip(),
            owner=self,
            on_result=lambda _result: self._fetched(name),
            on_failure=self._fetch_failed,
            on_progress=lambda progress: self._progress.set_progress(progress.what, progress.done, progress.total),
            on_canceled=lambda: self._fetch_ended(tr("Stopped. Fetching it again goes on where it stopped."), "muted"),
        )
        self.token.clear()

    def _fetched(self, name: str) -> None:
        self._fetch_ended("", "muted")
        self._selected = name
        self._ask()
        self.chosen.emit(name)

    def _fetch_failed(self, failure: Failure) -> None:
        self._fetch_ended(f"{failure.what} {failure.remedy}".strip(), "error")

    def _fetch_ended(self, text: str, tone: str) -> None:
        self._fetching = ""
        self._progress.hide()
        self._show_details()
        if text:
            self.message.setText(text)
            set_tone(self.message, tone)
            self.message.show()
