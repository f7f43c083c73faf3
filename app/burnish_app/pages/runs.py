"""The page Runs: a table of all runs to sort, filter and select from, a pane about the selection, and actions on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QItemSelection, QItemSelectionModel, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QBoxLayout, QLineEdit

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.loss_outlines import LossOutlines
from burnish_app.engine_setup.run_report import RunReport
from burnish_app.item_models.runs import RunsOrder, RunsTableModel
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.page_states.runs import page_state
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import Card, EmptyState
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.to_come import CardsToCome, NothingYet
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.compare.overlay_charts import MOST_RUNS
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.runs.deleted_runs import DeletedRuns
from burnish_app.widgets.runs.run_cells import CurveDelegate, PillDelegate
from burnish_app.widgets.runs.run_details import RunDetails
from burnish_app.wording.activity import run_title
from burnish_app.wording.run_text import RUN_ACTION_BUTTONS, RUN_TONES, Tone
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import AnnotateRequest, CommandRequest, ResumeRequest

_ROW_PX = 40
_RUN, _STATUS, _MODEL, _STEP, _CURVE, _LOSS, _HELD_OUT, _DELTA, _TAGS, _TOOK, _STARTED = range(11)
_WIDTHS_PX = (176, 112, 148, 100, 108, 72, 84, 84, 96, 96, 104)
_DROP_COLUMNS = ((_TOOK,), (_MODEL,), (_LOSS,), (_TAGS,), (_STEP,), (_STARTED,), (_CURVE,), (_DELTA,), (_HELD_OUT,))
_DETAILS_PX, _BESIDE_FROM_PX = 332, 860  # width of the pane, and the page's from which it stands beside the table
_FILTER_PX = 264
_LEAST_ROWS = 5


class RunsPage(Page):
    """Shows a table of all runs, newest first, and a pane about the selected ones."""

    key, title, question = "runs", tr("Runs"), tr("What has been trained here?")
    wants_runs = True
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self.model = RunsTableModel(self)
        self.order = RunsOrder(self.model, self)
        self._runs: list[RunSummary] = []
        self._deleted = DeletedRuns(self, client)
        self._deleted.changed.connect(self.refresh_runs)
        self._outlines = LossOutlines(self)
        self._outlines.changed.connect(self._show_curves)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText(tr("Filter by name, model, data, tag ..."))
        self.filter.setAccessibleName(tr("Filter"))
        self.filter.setClearButtonEnabled(True)
        self.filter.setFixedWidth(scaled(_FILTER_PX))
        self.filter.textChanged.connect(self._filter_changed)
        self._count = caption("")
        self._count.setWordWrap(False)
        self.table = self._make_table()
        self.nothing = NothingYet(
            EmptyState(
                "runs",
                tr("No run yet."),
                tr("Go to the recipe"),
                lambda: self.go_to.emit("recipe"),
                detail=tr("Every run started here or on the command line is listed."),
            ),
            CardsToCome(tr("Runs appear here with the curves of their loss"), (1,)),
        )
        self._card = Card()
        finding = FlowLayout(UNIT, UNIT // 2)
        finding.addWidget(self.filter)
        finding.addWidget(self._count)
        self._card.body.addLayout(finding)
        self._card.body.addWidget(self.table, 1)
        self.details = RunDetails()
        self.details.noted.connect(self._note)
        self._beside = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._beside.setSpacing(GAP_PX)
        self._beside.addWidget(self._card, 1)
        self._beside.addWidget(self.details)
        self.parts |= {"card": self._card, "details": self.details}
        self.add_parts(1, nothing=self.nothing)
        self.column.addLayout(self._beside, 1)
        self.delete = self.add_secondary(tr("Delete"), self._delete, "trash", "delete")
        self.reveal = self.add_secondary(tr("Show folder"), self._reveal, "folder", "reveal")
        self.report = self.add_secondary(tr("Report"), self._report, "text", "report")
        self.reports = RunReport(self)
        self.reports.written.connect(lambda page: QDesktopServices.openUrl(QUrl.fromLocalFile(page)))
        self.reports.failed.connect(lambda said: self.banner("error", tr("There is no report."), said))
        self.duplicate = self.add_secondary(tr("Duplicate as draft"), self._duplicate, "copy", "duplicate")
        self.stop = self.add_secondary(RUN_ACTION_BUTTONS["stop"][0], self._stop, "stop", "stop")
        self.resume = self.add_secondary(tr("Resume"), self._resume, "play", "resume")
        self.duel = self.add_secondary(tr("Duel"), self._duel, "scale", "duel")
        self.open = self.set_primary(tr("Open"), self._open, "open")
        within = Qt.ShortcutContext.WidgetWithChildrenShortcut
        QShortcut(QKeySequence.StandardKey.Find, self, self._find, context=within)
        QShortcut(QKeySequence.StandardKey.Delete, self.table, self._delete, context=within)
        self._show()

    @property
    def selection(self) -> list[RunSummary]:
        """The selected runs, in the order of the table."""
        rows = sorted(index.row() for index in self.table.selectionModel().selectedRows())
        return [run for run in map(self.order.run, rows) if run is not None]

    @property
    def selected(self) -> RunSummary | None:
        """The selected run; None: there is none, or there are several."""
        runs = self.selection
        return runs[0] if len(runs) == 1 else None

    def shown(self) -> None:
        """Request the runs."""
        self.refresh_runs.emit()

    def hidden(self) -> None:
        """Keep what was typed about a run."""
        self.details.keep_notes()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the pane beside the table, or below it where there is no room."""
        super().resizeEvent(event)
        beside = self.width() >= _BESIDE_FROM_PX
        self._beside.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self.details.setMinimumWidth(_DETAILS_PX if beside else 0)
        self.details.setMaximumWidth(_DETAILS_PX if beside else 2**20)

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Show the new list of runs; selected runs stay selected."""
        chosen = [run.folder for run in self.selection] or [self.bench.run]
        self._runs = runs
        self.model.set_runs(runs)
        if not self.selection and runs:
            self._select(chosen)
        self.column.setStretchFactor(self._beside, 1 if runs else 0)
        if self.isVisible():
            self._outlines.read(run.folder for run in runs)
        self._show_count()
        self._show()

    def _make_table(self) -> FittingTable:
        table = FittingTable(
            self.order,
            tr("Runs"),
            _WIDTHS_PX,
            first_min_px=_WIDTHS_PX[0],
            grow=(_RUN,),
            drop_columns=_DROP_COLUMNS,
            narrow=(_STATUS,),
            row_px=_ROW_PX,
            head_px=_ROW_PX,
        )
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        table.horizontalHeader().setSortIndicator(_STARTED, Qt.SortOrder.DescendingOrder)
        table.setSortingEnabled(True)
        table.horizontalHeader().setSortIndicatorShown(False)  # the heading has an arrow
        table.hold_rows(_LEAST_ROWS)
        table.setItemDelegateForColumn(_STATUS, PillDelegate(table, self._tone_of))
        table.setItemDelegateForColumn(_CURVE, CurveDelegate(table, self._losses_of))
        table.selectionModel().selectionChanged.connect(self._show)
        table.activated.connect(self._open)
        return table

    def _select(self, folders: Sequence[str]) -> None:
        """Select runs by their folders; the first run if none of them is shown."""
        rows = [found for folder in folders if (found := self.order.row_of(folder)) >= 0]
        selection = QItemSelection()
        for at in rows or ([0] if self.order.rowCount() else []):
            selection.select(self.order.index(at, 0), self.order.index(at, self.order.columnCount() - 1))
        self.table.selectionModel().select(selection, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if not selection.isEmpty():
            current = selection.indexes()[0]
            self.table.selectionModel().setCurrentIndex(current, QItemSelectionModel.SelectionFlag.NoUpdate)

    def _filter_changed(self, text: str) -> None:
        chosen = [run.folder for run in self.selection]
        self.order.set_text(text)
        if not self.selection:
            self._select(chosen)
        self._show_count()

    def _show_count(self) -> None:
        shown, known = self.order.rowCount(), len(self._runs)
        text = (
            tr("{shown} of {known}").format(shown=shown, known=known)
            if shown
            else tr("No run matches. Clear the filter to see all {known}.").format(known=known)
        )
        hint = tr("Ctrl or Shift and click selects several to compare.") if known > 1 else ""
        self._count.setText(text if self.filter.text() else hint)

    def _find(self) -> None:
        self.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.filter.selectAll()

    def _tone_of(self, at: int) -> Tone:
        run = self.order.run(at)
        return RUN_TONES.get(run.standing, "plain") if run is not None else "plain"

    def _losses_of(self, at: int) -> Sequence[float]:
        run = self.order.run(at)
        return self._outlines.of(run.folder) if run is not None else ()

    def _show_curves(self) -> None:
        self.table.viewport().update()
        self._show()

    def _show(self, *_selection: object) -> None:
        runs = self.selection
        if len(runs) == 1:
            self.details.show_run(runs[0], self._outlines.of(runs[0].folder), self.model.deltas.get(runs[0].folder))
        elif runs:
            self.details.show_several(runs, self.model.deltas)
        self.apply(page_state(self._runs, runs, MOST_RUNS))

    def _open(self, *_index: object) -> None:
        runs = self.selection
        if self.does == "open":
            self.bench.set_run(runs[0].folder)
            self.go_to.emit("train")
        elif self.does == "compare":
            self.bench.set_compared([run.folder for run in runs])
            self.go_to.emit("compare")

    def _duel(self) -> None:
        self.bench.set_duelists([run.folder for run in self.selection])
        self.go_to.emit("duel")

    def _duplicate(self) -> None:
        run = self.selected
        if run is not None:
            self.draft_from(RunPaths(Path(run.folder)).recipe, run_title(run))

    def _note(self, folder: str, tags: list[str], text: str) -> None:
        self.command(AnnotateRequest, run=folder, tags=tags, text=text)

    def _resume(self) -> None:
        if self.selected is not None:
            self.command(ResumeRequest, run=self.selected.folder)

    def _stop(self) -> None:
        if self.selected is not None:
            self.command(CommandRequest, run=self.selected.folder, command="stop")

    def _reveal(self) -> None:
        if self.selected is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(self.selected.folder))

    def _report(self) -> None:
        if self.selected is not None:
            self.reports.write(Path(self.selected.folder))

    def _delete(self) -> None:
        if not self.delete.isEnabled():
            return
        self.details.keep_notes()
        runs = self.selection
        for run in runs:
            if self.bench.run == run.folder:
                self.bench.set_run("")
        self._deleted.delete(runs)
