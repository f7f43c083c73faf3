"""The fidelity report: the conclusion in words, the file to take, then a line a file with the figures behind it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout

from burnish_app.fidelity_words import (
    file_in_words,
    gain_in_words,
    report_in_words,
    suggestion_in_words,
    training_in_words,
)
from burnish_app.theme import UNIT
from burnish_app.widgets.card import Card
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import Look, body, caption, heading, mono, set_look, title
from burnish_app.words import percent, plural
from burnish_engine.contract.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.units import file_size

_COLUMNS = (
    ("Type", "GGUF type most of the file's tensors have"),
    ("Size", "As shops count: a GB is a billion bytes"),
    ("Gain kept", "Share of what training gained on held-out rows that this file keeps"),
    (
        "Same choice",
        "Top-1 agreement: share of positions where the file's most likely next token is the trained model's",
    ),
    ("Mean KL", "How far its predictions are from the trained model's on average, nats; 0 is identical"),
    ("99 % KL", "99th percentile: one position in a hundred differs by more, nats"),
)


class FidelityCard(Card):
    """Shows what was proven about exported files."""

    def __init__(self) -> None:
        super().__init__("Fidelity", "Every file is compared with the trained model, token by token.")
        self._content = QVBoxLayout()
        self._content.setSpacing(UNIT)
        self.body.addLayout(self._content)

    def show_report(self, report: FidelityReport, *, suggested: str = "", why: str = "") -> None:
        """Show another report.

        Args:
            report: As the export made it.
            suggested: The file to take; empty: none.
            why: Why that one, or why none.
        """
        clear(self._content)
        some = any(file.passed for file in report.files) and not report.token_mismatches
        look: Look = "success" if report.passed else "warning" if some else "error"
        verdict = title("Safe to ship." if report.passed else "Some are safe to ship." if some else "Not safe to ship.")
        set_look(verdict, "" if report.passed or some else "error")
        self._content.addWidget(verdict)
        self._content.addWidget(body(report_in_words(report), look))
        if why:
            suggestion = heading(suggestion_in_words(suggested, why))
            set_look(suggestion, "accent" if suggested else "warning")
            self._content.addWidget(suggestion)
        self._content.addSpacing(UNIT)
        self._content.addLayout(_table(report.files, suggested))
        self._content.addSpacing(UNIT)
        for file in report.files:
            self._add_words(file)
        if gained := training_in_words(report):
            self._content.addWidget(caption(gained))
        for example in report.mismatch_examples[:3]:
            self._content.addWidget(mono(example, "error"))
        for text in report.notes:
            self._content.addWidget(caption(text))

    def _add_words(self, file: QuantFidelity) -> None:
        gain, words = gain_in_words(file), file_in_words(file)
        if gain:
            self._content.addWidget(body(gain))
            self._content.addWidget(caption(words))
        else:
            self._content.addWidget(body(words, "" if file.passed else "error"))
        if file.fallbacks:
            note = caption(f"{file.quant}: {plural(len(file.fallbacks), 'tensor')} got another type than asked.")
            note.setToolTip("\n".join(file.fallbacks[:20]))
            self._content.addWidget(note)


def _table(files: list[QuantFidelity], suggested: str) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(2 * UNIT)
    grid.setVerticalSpacing(UNIT)
    for column, (name, hint) in enumerate(_COLUMNS):
        label = caption(name)
        label.setToolTip(hint)
        _place(grid, label, 0, column)
    for line, file in enumerate(files, 1):
        look: Look = "" if file.passed else "error"
        kept = "–" if file.gain_kept is None else percent(min(max(file.gain_kept, 0.0), 1.0))
        figures = (
            file_size(file.bytes),
            kept,
            percent(file.top1_agreement, 1),
            f"{file.mean_kl:.4f}",
            f"{file.p99_kl:.3f}",
        )
        type_name = heading(f"{'✓' if file.passed else '✕'} {file.quant}")
        set_look(type_name, "error" if not file.passed else "accent" if file.file == suggested else "success")
        state = "proven" if file.passed else "refused"
        type_name.setToolTip(f"{file.file}: {state}\nSHA-256 {file.sha256}")
        type_name.setAccessibleName(f"{file.quant}, {state}")
        _place(grid, type_name, line, 0)
        for column, text in enumerate(figures, 1):
            _place(grid, body(text, look), line, column)
    grid.setColumnStretch(len(_COLUMNS), 1)
    return grid


def _place(grid: QGridLayout, label: QLabel, line: int, column: int) -> None:
    label.setWordWrap(line == 0)  # headings may take two lines, figures stay whole
    side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
    label.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    grid.addWidget(label, line, column, side | Qt.AlignmentFlag.AlignBottom)
