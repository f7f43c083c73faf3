"""The fidelity report: the conclusion in words, then a line a file with the figures behind it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout

from burnish_app.fidelity_words import file_in_words, report_in_words
from burnish_app.theme import UNIT
from burnish_app.widgets.card import Card
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import Look, body, caption, heading, mono, set_look, title
from burnish_app.words import bytes_in_words, percent, plural
from burnish_engine.contract.facts import FidelityReport, QuantFidelity

_COLUMNS = (
    ("Type", "GGUF type most of the file's tensors have"),
    ("Size", ""),
    ("Same choice", "Share of positions where the file's most likely next token is the trained model's"),
    ("Mean KL", "How far its predictions are from the trained model's on average, nats; 0 is identical"),
    ("99th percentile", "One position in a hundred differs by more, nats"),
    ("", ""),
)


class FidelityCard(Card):
    """Shows what was proven about exported files."""

    def __init__(self) -> None:
        super().__init__("Fidelity", "Every file is compared with the trained model, token by token.")
        self._content = QVBoxLayout()
        self._content.setSpacing(UNIT)
        self.body.addLayout(self._content)

    def show_report(self, report: FidelityReport) -> None:
        """Show another report."""
        clear(self._content)
        some = any(file.passed for file in report.files) and not report.token_mismatches
        look: Look = "success" if report.passed else "warning" if some else "error"
        verdict = title("Safe to ship." if report.passed else "Some are safe to ship." if some else "Not safe to ship.")
        set_look(verdict, "" if report.passed or some else "error")
        self._content.addWidget(verdict)
        self._content.addWidget(body(report_in_words(report), look))
        self._content.addSpacing(UNIT)
        self._content.addLayout(_table(report.files))
        self._content.addSpacing(UNIT)
        for file in report.files:
            self._content.addWidget(body(file_in_words(file), "" if file.passed else "error"))
            if file.fallbacks:
                note = caption(f"{file.quant}: {plural(len(file.fallbacks), 'tensor')} got another type than asked.")
                note.setToolTip("\n".join(file.fallbacks[:20]))
                self._content.addWidget(note)
        for example in report.mismatch_examples[:3]:
            self._content.addWidget(mono(example, "error"))
        for text in report.notes:
            self._content.addWidget(caption(text))


def _table(files: list[QuantFidelity]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(3 * UNIT)
    grid.setVerticalSpacing(UNIT)
    for column, (name, hint) in enumerate(_COLUMNS):
        label = caption(name)
        label.setToolTip(hint)
        _place(grid, label, 0, column)
    for line, file in enumerate(files, 1):
        look: Look = "" if file.passed else "error"
        figures = (
            percent(file.top1_agreement, 1),
            f"{file.mean_kl:.4f}",
            f"{file.p99_kl:.3f}",
        )
        type_name = heading(file.quant)
        type_name.setToolTip(f"{file.file}\nSHA-256 {file.sha256}")
        _place(grid, type_name, line, 0)
        for column, text in enumerate((bytes_in_words(file.bytes), *figures), 1):
            _place(grid, body(text, look), line, column)
        proven = body("proven" if file.passed else "refused", "success" if file.passed else "error")
        _place(grid, proven, line, len(_COLUMNS) - 1)
    grid.setColumnStretch(len(_COLUMNS), 1)
    return grid


def _place(grid: QGridLayout, label: QLabel, line: int, column: int) -> None:
    label.setWordWrap(False)
    side = Qt.AlignmentFlag.AlignLeft if column in (0, len(_COLUMNS) - 1) else Qt.AlignmentFlag.AlignRight
    grid.addWidget(label, line, column, side | Qt.AlignmentFlag.AlignVCenter)
