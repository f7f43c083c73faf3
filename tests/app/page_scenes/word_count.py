"""Counts the words and the controls of each page, whole and in view, in scenes of pages that have something to show.

    python tests/app/page_scenes/word_count.py [--width 1280] [--only recipe] [--texts]

Words are those of labels, buttons, fields and choices, and of what tables show; the sidebar is not counted.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QScrollBar,
    QTableView,
    QTextEdit,
    QWidget,
)

COUNTED = (
    "start-recent", "hardware-live", "model-done", "data-done", "recipe-suggested", "train-training", "train-finished",
    "try_out-done", "export-ready", "export-done", "runs-done", "compare-two", "sweep-drafted", "duel-planned",
    "settings-done",
)  # fmt: skip
"""Scenes of every page, with what it shows in use."""
_CONTROLS = (QAbstractButton, QComboBox, QLineEdit, QAbstractSpinBox, QAbstractSlider, QPlainTextEdit, QTableView)


class Count(NamedTuple):
    """Words and controls of a page, whole and in view, and the texts that were counted."""

    words: int
    words_in_view: int
    controls: int
    controls_in_view: int
    texts: tuple[str, ...]


def text_of(widget):
    """The text that a widget shows, whatever it is; empty: it shows none."""
    if isinstance(widget, QTableView):
        return " ".join(table_texts(widget))
    if isinstance(widget, QComboBox):
        return widget.currentText()
    if isinstance(widget, QLineEdit):
        return widget.text() or widget.placeholderText()
    if isinstance(widget, QPlainTextEdit | QTextEdit):
        return widget.toPlainText() or widget.placeholderText()
    return widget.text() if isinstance(widget, QLabel | QAbstractButton | QAbstractSpinBox) else ""


def table_texts(table):
    """Texts of a table: its headings and the rows that are scrolled into its view, each cell as far as it is seen."""
    model, role, metrics = table.model(), Qt.ItemDataRole.DisplayRole, table.fontMetrics()
    columns = [at for at in range(model.columnCount()) if not table.isColumnHidden(at)] if model else []
    for column in columns:
        yield str(model.headerData(column, Qt.Orientation.Horizontal, role) or "")
    for row in range(model.rowCount() if model else 0):
        if 0 <= table.rowViewportPosition(row) < table.viewport().height():
            for column in columns:
                text = str(model.index(row, column).data(role) or "").replace("\n", " ")
                yield metrics.elidedText(text, Qt.TextElideMode.ElideRight, table.columnWidth(column))


def is_part(widget):
    """Whether a widget is a part of another control, which stands for both."""
    around = widget.parentWidget()
    while around is not None:
        if isinstance(around, QComboBox | QAbstractSpinBox | QLineEdit | QPlainTextEdit):
            return True
        around = around.parentWidget()
    return isinstance(widget, QScrollBar)


def words(text):
    """Number of words; signs and numbers between spaces are words too."""
    return len(text.replace("\n", " ").split())


def count(page):
    """Count what a page shows."""
    shown = [one for one in page.findChildren(QWidget) if one.isVisibleTo(page) and not is_part(one)]
    in_view = [one for one in shown if not one.visibleRegion().isEmpty()]
    texts = [(one, text_of(one)) for one in shown]
    controls = [one for one in shown if isinstance(one, _CONTROLS)]
    return Count(
        sum(words(text) for _, text in texts),
        sum(words(text) for one, text in texts if one in in_view),
        len(controls),
        len([one for one in controls if one in in_view]),
        tuple(text for _, text in texts if text),
    )


def count_scene(name, size, theme):
    """Bring a window into a scene and count the page that is shown."""
    from app.page_scenes import screenshots

    from burnish_app.window import Window

    counts = []
    grab = Window.grab

    def and_count(window):
        counts.append(count(window.page(window.shown_key)))
        return grab(window)

    Window.grab = and_count
    try:
        screenshots.draw(name, size, theme, Path(tempfile.mkdtemp()) / "scene.bmp")
    finally:
        Window.grab = grab
    return counts[0]


def main():
    """Print a line for each scene."""
    from app.page_scenes import screenshots

    from burnish_app.garbage import GarbageCollector
    from burnish_app.look.motion import set_motion
    from burnish_app.look.theme import Theme

    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, choices=[width for width, _ in screenshots.SIZES], default=1280)
    parser.add_argument("--only", default="")
    parser.add_argument("--texts", action="store_true", help="print what was counted too")
    options = parser.parse_args()
    size = next(size for size in screenshots.SIZES if size[0] == options.width)
    app = QApplication([])
    GarbageCollector(app).start()
    theme = Theme(app)
    set_motion("reduced")
    screenshots.load_scenes()
    print(f"{'scene':20} {'words':>6} {'in view':>8} {'controls':>9} {'in view':>8}")
    for name in [one for one in COUNTED if options.only in one]:
        found = count_scene(name, size, theme)
        print(f"{name:20} {found.words:6} {found.words_in_view:8} {found.controls:9} {found.controls_in_view:8}")
        if options.texts:
            print("\n".join(f"    {text!r}" for text in found.texts))


if __name__ == "__main__":
    main()
