"""The page Runs: a table of all runs with their status, and actions on the selected run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.loss_outlines import LossOutlines
from burnish_app.engine.runs_poller import ACTIVE
from burnish_app.item_models.runs import RunsTableModel
from burnish_app.look.language import tr
from burnish_app.pages.base import Page
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import Card, EmptyState
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.runs.run_cells import CurveDelegate, PillDelegate
from burnish_app.widgets.runs.run_details import RunDetails
from burnish_app.wording.numbers import plural
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES, Tone
from burnish_engine.contract.serve.protocol import CommandRequest, DeleteRequest, ResumeRequest, RunSummary

_RESUMABLE = ("paused", "stopped", "suspended", "failed", "interrupted")
_STOPPABLE = ("queued", "running", "paused")
_KEPT = ("running", "paused", tr("not responding"))
_ROW_PX = 40
_RUN, _STATUS, _MODEL, _STEP, _CURVE, _LOSS, _HELD_OUT, _TOOK, _STARTED = range(9)
_WIDTHS_PX = (120, 120, 136, 104, 124, 68, 80, 88, 96)
_DROP_COLUMNS = ((_TOOK,), (_MODEL,), (_STARTED,), (_CURVE,), (_HELD_OUT,))
_MOST_ROWS = 8  # seen at once, so that the card below keeps its place


class RunsPage(Page):
    """Shows a table of all runs, newest first."""

    key, title, question = "runs", tr("Runs"), tr("What has been trained here?")
    wants_runs = True
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self.model = RunsTableModel(self)
        self._outlines = LossOutlines(self)
        self._outlines.changed.connect(self._show_curves)
        self.table = self._make_table()
        self.nothing = Card()
        self.nothing.body.addWidget(
            EmptyState(
                "runs",
                tr("No run yet."),
                tr("Go to the recipe"),
                lambda: self.go_to.emit("recipe"),
                detail=tr("Every run started here or on the command line is listed."),
            )
        )
        self._card = Card()
        self._card.body.addWidget(self.table)
        self._card.hide()
        self.details = RunDetails()
        self.details.hide()
        self.column.addWidget(self.nothing)
        self.column.addWidget(self._card)
        self.column.addWidget(self.details, 1)
        self.delete = self.add_secondary(tr("Delete"), self._ask_delete, "trash")
        self.reveal = self.add_secondary(tr("Show folder"), self._reveal, "folder")
        self.stop = self.add_secondary(tr("Stop and save"), self._stop, "stop")
        self.resume = self.add_secondary(tr("Resume"), self._resume, "play")
        self.open = self.set_primary(tr("Open"), self._open, "open")
        self._offer()

    @property
    def selected(self) -> RunSummary | None:
        """The selected run; None: there is none."""
        rows = self.table.selectionModel().selectedRows()
        return self.model.run(rows[0].row()) if rows else None

    def shown(self) -> None:
        """Request the runs."""
        self.refresh_runs.emit()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Show the new list of runs; a selected run stays selected."""
        chosen = self.selected.folder if self.selected else self.bench.run
        self.model.set_runs(runs)
        if self.selected is None and runs:
            self.table.selectRow(max(self.model.row_of(chosen), 0))
        self.nothing.setVisible(not runs)
        self._card.setVisible(bool(runs))
        self.table.setFixedHeight((min(len(runs), _MOST_ROWS) + 1) * _ROW_PX + 4)
        if self.isVisible():
            self._outlines.read(run.folder for run in runs)
        alive = sum(run.standing in ACTIVE for run in runs)
        self.set_subtitle(
            tr("{plural}, {alive} going on").format(plural=plural(len(runs), "run"), alive=alive) if runs else ""
        )
        self.set_status("busy" if alive else "done" if runs else "empty")
        self._offer()

    def _make_table(self) -> FittingTable:
        table = FittingTable(
            self.model,
            tr("Runs"),
            _WIDTHS_PX,
            first_min_px=_WIDTHS_PX[0],
            grow=(_RUN, _MODEL),
            drop_columns=_DROP_COLUMNS,
        )
        table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        table.verticalHeader().setDefaultSectionSize(_ROW_PX)
        table.horizontalHeader().setFixedHeight(_ROW_PX)
        table.setItemDelegateForColumn(_STATUS, PillDelegate(table, self._tone_of))
        table.setItemDelegateForColumn(_CURVE, CurveDelegate(table, self._losses_of))
        table.selectionModel().selectionChanged.connect(self._offer)
        table.activated.connect(self._open)
        return table

    def _tone_of(self, row: int) -> Tone:
        run = self.model.run(row)
        return RUN_TONES.get(run.standing, "plain") if run is not None else "plain"

    def _losses_of(self, row: int) -> Sequence[float]:
        run = self.model.run(row)
        return self._outlines.of(run.folder) if run is not None else ()

    def _show_curves(self) -> None:
        self.table.viewport().update()
        self._offer()

    def _offer(self, *_selection: object) -> None:
        run = self.selected
        status = run.standing if run else ""
        self.details.setVisible(run is not None)
        if run is not None:
            self.details.show_run(run, self._outlines.of(run.folder))
        for button in (self.open, self.delete, self.reveal):
            button.setVisible(run is not None)
        self.delete.setEnabled(status not in _KEPT)
        self.delete.setToolTip(tr("Stop it first.") if status in _KEPT else "")
        self.stop.setVisible(status in _STOPPABLE)
        self.resume.setVisible(status in _RESUMABLE)
        self.fit_foot()

    def _open(self, *_index: object) -> None:
        if self.selected is not None:
            self.bench.set_run(self.selected.folder)
            self.go_to.emit("train")

    def _resume(self) -> None:
        if self.selected is not None:
            self.client.send(
                ResumeRequest, run=self.selected.folder, on_result=self._done, on_failure=self.failed, owner=self
            )

    def _stop(self) -> None:
        if self.selected is not None:
            self.client.send(
                CommandRequest,
                run=self.selected.folder,
                command="stop",
                on_result=self._done,
                on_failure=self.failed,
                owner=self,
            )

    def _reveal(self) -> None:
        if self.selected is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(self.selected.folder))

    def _ask_delete(self) -> None:
        run = self.selected
        if run is None:
            return
        self.banner(
            "warning",
            tr("Delete {value} ({lower})?").format(
                value=run.state.name or Path(run.folder).name, lower=RUN_STATUS_TEXT[run.standing].lower()
            ),
            tr("Its checkpoints, what it learned and its exported files go with it. This cannot be undone."),
            [(tr("Delete it"), lambda: self._delete(run.folder))],
            close_text=tr("Keep it"),
        )

    def _delete(self, folder: str) -> None:
        self.clear_banner()
        self.client.send(DeleteRequest, run=folder, on_result=self._done, on_failure=self.failed, owner=self)
        if self.bench.run == folder:
            self.bench.set_run("")

    def _done(self, _result: object) -> None:
        self.refresh_runs.emit()
