"""Content that unfolds below its title."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import quiet


class Fold(QWidget):
    """A title that shows and hides what is below it; folded at first.

    Attributes:
        button: title, which folds and unfolds.
        content: widget that unfolds.
        lines: layout of the content.
    """

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self.button = quiet("", self._toggle)
        self.content = QWidget()
        self.lines = QVBoxLayout(self.content)
        self.lines.setContentsMargins(0, 0, 0, 0)
        self.lines.setSpacing(UNIT)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(UNIT)
        column.addWidget(self.button, alignment=Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.content)
        self.content.hide()

    def set_title(self, title: str) -> None:
        """Replace the title."""
        self._title = title
        folded = self.content.isHidden()
        self.button.setText(f"{'▸' if folded else '▾'}  {title}")
        self.button.setAccessibleName(f"{title}, {tr('folded') if folded else tr('open')}")

    def _toggle(self) -> None:
        self.content.setVisible(self.content.isHidden())
        self.set_title(self._title)
