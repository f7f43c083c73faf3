"""The card with the runs of a sweep: a table of settings and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractItemView

from burnish_app.comparison.swept import SweepRow, ranked, unfinished
from burnish_app.item_models.sweep import SweepModel
from burnish_app.look.language import tr
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import body
from burnish_app.widgets.page.banner import ProgressBar
from burnish_app.widgets.runs.run_cells import CurveDelegate, PillDelegate
from burnish_app.wording.numbers import plural
from burnish_app.wording.run_text import RUN_TONES, Tone
from burnish_engine.contract.facts.sweeps import SweepFile

_ROW_PX = 40
_VALUE_PX, _AFTER_PX = 108, (112, 100, 128, 84, 84, 96)
_MOST_ROWS = 12  # seen at once


class SweepRunsCard(Card):
    """Shows the runs of one sweep.

    Args:
        sweep: the sweep.
        outline_of: function that returns the outline of a run's loss by its folder.

    Attributes:
        chosen: signal without arguments, emitted when other runs are selected.
        opened: signal with the folder of a run that shall be opened.
    """

    chosen = Signal()
    opened = Signal(str)

    def __init__(self, sweep: SweepFile, outline_of: Callable[[str], Sequence[float]]) -> None:
        super().__init__(
            sweep.name, tr("The runs that are selected are compared below; without a selection, the best ones.")
        )
        self.sweep = sweep
        self._outline_of = outline_of
        self._rows: list[SweepRow] = []
        self.model = SweepModel(sweep, self)
        count = len(sweep.settings)
        widths = (*(_VALUE_PX for _ in range(count)), *_AFTER_PX)
        status, step, curve, held_out, delta, took = range(count, count + len(_AFTER_PX))
        self.table = FittingTable(
            self.model,
            tr("Runs of the sweep"),
            widths,
            first_min_px=96,
            grow=tuple(range(count)),
            drop_columns=((took,), (step,), (curve,), (delta,), (status,)),
            narrow=(*range(1, count), held_out),
            row_px=_ROW_PX,
            head_px=_ROW_PX,
        )
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.table.setItemDelegateForColumn(status, PillDelegate(self.table, self._tone_of))
        self.table.setItemDelegateForColumn(curve, CurveDelegate(self.table, self._losses_of))
        self.table.selectionModel().selectionChanged.connect(lambda *_: self.chosen.emit())
        self.table.activated.connect(lambda index: self._open(index.row()))
        self.state, self._bar = body("", "muted"), ProgressBar()
        for widget in (self.state, self._bar, self.table):
            self.body.addWidget(widget)

    @property
    def rows(self) -> Sequence[SweepRow]:
        """The runs, in the order of the table."""
        return self._rows

    @property
    def selection(self) -> list[SweepRow]:
        """The selected runs, in the order of the table."""
        places = sorted(index.row() for index in self.table.selectionModel().selectedRows())
        return [row for row in map(self.model.row, places) if row is not None]

    def show_rows(self, rows: Sequence[SweepRow]) -> None:
        """Show the runs as they are now, those with the lowest held-out loss first once all have ended."""
        left = unfinished(rows)
        self._rows = list(rows) if left else ranked(rows)
        self.model.set_rows(self._rows)
        done = len(rows) - len(left)
        share = sum(_share(row) for row in rows) / len(rows) if rows else 0.0
        self._bar.set_share(share)
        self._bar.setVisible(bool(left))
        going = tr("{done} of {runs} have ended.").format(done=done, runs=plural(len(rows), "run"))
        self.state.setText(going if left else tr("All {runs} have ended.").format(runs=plural(len(rows), "run")))
        seen = min(len(rows), _MOST_ROWS)
        self.table.hold_rows(seen, seen)

    def redraw_curves(self) -> None:
        """Draw the outlines of losses that were read."""
        self.table.viewport().update()

    def _open(self, place: int) -> None:
        row = self.model.row(place)
        if row is not None:
            self.opened.emit(row.run.folder)

    def _tone_of(self, place: int) -> Tone:
        row = self.model.row(place)
        return RUN_TONES.get(row.run.standing, "plain") if row is not None else "plain"

    def _losses_of(self, place: int) -> Sequence[float]:
        row = self.model.row(place)
        return self._outline_of(row.run.folder) if row is not None else ()


def _share(row: SweepRow) -> float:
    """Return how far a run is, 0 to 1; one that ended is as far as it goes."""
    if not unfinished([row]):
        return 1.0
    state = row.run.state
    return state.step / state.total_steps if state.total_steps else 0.0
