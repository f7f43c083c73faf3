"""The card of the fidelity report: the conclusion, the suggested file, and a table with the figures of each file."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import FoldedContent
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import Look, Value, body, caption, heading, headline, mono, set_tone
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.export.file_actions import FileActions
from burnish_app.wording.fidelity_text import (
    file_text,
    gain_text,
    report_text,
    suggestion_text,
    training_text,
)
from burnish_app.wording.numbers import percent, plural, speed_figure
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.units import file_size

_COLUMNS = (
    (tr("Type"), tr("GGUF type most of the file's tensors have")),
    (tr("Size"), tr("As shops count: a GB is a billion bytes")),
    (tr("Gain kept"), tr("Share of what training gained on held-out rows that this file keeps")),
    (
        tr("Top-1 agreement"),
        tr("Same choice: share of positions where the file's most likely next token is the trained model's"),
    ),
    (
        tr("Difference"),
        tr("How far its predictions are from the trained model's: mean KL divergence, nats; 0 is identical"),
    ),
    (tr("99 % below"), tr("99th percentile of the difference: one position in a hundred differs by more, nats")),
)
_TOLD = (1, 5)  # columns of size and score, which the sentences about each file say too
_MEAN_KL = 4  # column of the mean KL, whose tooltip holds the 99th percentile where a score takes that one's place
_SCORE = (
    tr("Score"),
    tr("Score of the task: right replies to the held-out rows that training scored, answered by the file"),
)


class FidelityCard(Card):
    """Shows how faithful exported files are to the trained model, and what can be done with the best one.

    Attributes:
        acts: what can be done with it.
        leading: its name; empty: none passed.
    """

    def __init__(self) -> None:
        super().__init__(tr("Fidelity"), icon_name="scale")
        self._content, self._below = fill(QVBoxLayout(), spacing_px=UNIT), fill(QVBoxLayout(), spacing_px=UNIT)
        self.acts = FileActions()
        self.leading = ""
        fill(self.body, self._content, self.acts, self._below, spacing_px=2 * UNIT)

    def show_report(self, report: FidelityReport, *, suggested: str = "", why: str = "") -> None:
        """Replace the report shown.

        Args:
            report: fidelity report of the export.
            suggested: name of the suggested file; empty: none.
            why: reason for that file, or why there is none.
        """
        clear(self._content)
        clear(self._below)
        some = any(file.passed for file in report.files) and not report.token_mismatches
        tone: Look = "success" if report.passed else "warning" if some else "error"
        verdict = headline(
            tr("Safe to ship.") if report.passed else tr("Some are safe to ship.") if some else tr("Not safe to ship.")
        )
        set_tone(verdict, tone)
        self._content.addWidget(verdict)
        if why:
            suggestion = heading(suggestion_text(suggested, why))
            set_tone(suggestion, "accent" if suggested else "warning")
            self._content.addWidget(suggestion)
        passed = [file for file in report.files if file.passed]
        best = next((file for file in passed if file.file == suggested), passed[0] if passed else None)
        self.leading = best.file if best is not None else ""
        if best is not None:
            self._content.addWidget(_figures(best))
        self.details = FoldedContent()
        self.details.set_title(tr("Details"))
        # What is wrong is read at once; what is right can be looked up.
        told = self.details.lines if report.passed else self._below
        if len(report.files) > 1 or best is None:
            self._below.addWidget(_table(report, suggested))
        compared = caption(tr("Every file is compared with the trained model, token by token."))
        self.details.lines.addWidget(compared)
        told.addWidget(body(report_text(report), "" if report.passed else tone))
        for file in report.files:
            self._add_file_text(file, self._below if not file.passed else self.details.lines)
        for example in report.mismatch_examples[:3]:
            self._below.addWidget(mono(example, "error"))
        for text in (training_text(report), *report.notes):
            if text:
                self.details.lines.addWidget(caption(text))
        self._below.addWidget(self.details)

    @staticmethod
    def _add_file_text(file: QuantFidelity, lines: QVBoxLayout) -> None:
        gain, text = gain_text(file), file_text(file)
        if gain:
            lines.addWidget(body(gain))
            lines.addWidget(caption(text))
        else:
            lines.addWidget(body(text, "" if file.passed else "error"))
        if file.fallbacks:
            note = caption(
                tr("{quant}: {plural} got another type than asked.").format(
                    quant=file.quant, plural=plural(len(file.fallbacks), "tensor")
                )
            )
            note.setToolTip("\n".join(file.fallbacks[:20]))
            lines.addWidget(note)


def _figures(file: QuantFidelity) -> QWidget:
    """Make the three figures of a file that matter most: what it keeps, its size, and how fast it writes."""
    size, unit = file_size(file.bytes).split(" ", 1)
    kept = Value(_COLUMNS[2][0], "", _COLUMNS[2][1])
    if file.gain_kept is not None:
        kept.set(percent(min(max(file.gain_kept, 0.0), 1.0), 1))
    small = Value(tr("Size"), unit, _COLUMNS[1][1])
    small.set(size)
    same = Value(tr("Same choice"), "", _COLUMNS[3][1])
    same.set(percent(file.top1_agreement, 1))
    speed = Value(tr("Writes here"), "tokens/s", tr("Measured on this processor, while the file was checked."))
    if file.tokens_per_s:
        speed.set(speed_figure(file.tokens_per_s))
    known = [value for value in (kept, small, speed, same) if value.text != "–"][:3]
    holder = QWidget()
    holder.setLayout(columns_layout(known, 4 * UNIT, even=True))
    holder.setAccessibleName(file.file)
    return holder


class _Figures(QWidget):
    """A table that leaves out columns where it has no room, of those whose figures stand in the text below too."""

    def __init__(self) -> None:
        super().__init__()
        self.grid = QGridLayout(self)
        self.grid.setContentsMargins(0, 0, 0, 0)
        self.grid.setHorizontalSpacing(2 * UNIT)
        self.grid.setVerticalSpacing(UNIT)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: without the columns that may be left out."""
        hint = super().minimumSizeHint()
        return QSize(self._width(_TOLD), hint.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show as many columns as there is room for."""
        super().resizeEvent(event)
        left_out = next(
            (_TOLD[:count] for count in range(len(_TOLD)) if self._width(_TOLD[:count]) <= self.width()), _TOLD
        )
        for column in _TOLD:
            for cell in self._cells(column):
                cell.setVisible(column not in left_out)

    def _width(self, left_out: Sequence[int]) -> int:
        columns = [column for column in range(len(_COLUMNS)) if column not in left_out]
        widths = [max(cell.minimumSizeHint().width() for cell in self._cells(column)) for column in columns]
        return sum(widths) + self.grid.horizontalSpacing() * (len(columns) - 1)

    def _cells(self, column: int) -> list[QWidget]:
        items = (self.grid.itemAtPosition(line, column) for line in range(self.grid.rowCount()))
        return [cell for item in items if item is not None and (cell := item.widget()) is not None]


def _table(report: FidelityReport, suggested: str) -> _Figures:
    files = report.files
    scored = any(file.task for file in files)
    table = _Figures()
    grid = table.grid
    for column, (name, hint) in enumerate((*_COLUMNS[:-1], _SCORE) if scored else _COLUMNS):
        label = caption(name)
        label.setToolTip(hint)
        _place(grid, label, 0, column)
    for line, file in enumerate(files, 1):
        tone: Look = "" if file.passed else "error"
        kept = "–" if file.gain_kept is None else percent(min(max(file.gain_kept, 0.0), 1.0), 1)
        figures = (
            file_size(file.bytes),
            kept,
            percent(file.top1_agreement, 1),
            f"{file.mean_kl:.4f}",
            (percent(file.task.share) if file.task else "–") if scored else f"{file.p99_kl:.3f}",
        )
        type_name = heading(f"{'✓' if file.passed else '✕'} {file.quant}")
        set_tone(type_name, "error" if not file.passed else "accent" if file.file == suggested else "success")
        state = "proven" if file.passed else "refused"
        type_name.setToolTip(
            tr("{file}: {state}\nSHA-256 {sha256}").format(file=file.file, state=state, sha256=file.sha256)
        )
        type_name.setAccessibleName(f"{file.quant}, {state}")
        _place(grid, type_name, line, 0)
        for column, text in enumerate(figures, 1):
            cell = body(text, tone)
            if scored and column == _MEAN_KL:
                cell.setToolTip(tr("99th percentile: {kl} nats").format(kl=f"{file.p99_kl:.3f}"))
            _place(grid, cell, line, column)
    grid.setColumnStretch(len(_COLUMNS), 1)
    return table


def _place(grid: QGridLayout, label: QLabel, line: int, column: int) -> None:
    label.setWordWrap(line == 0)  # headings may take two lines, figures stay whole
    side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
    label.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    grid.addWidget(label, line, column, side | Qt.AlignmentFlag.AlignBottom)
