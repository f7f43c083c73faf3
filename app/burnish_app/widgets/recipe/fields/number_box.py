"""A box for a number: typed, stepped by buttons and keys, with its unit inside and a word such as "off" for 0."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QValidator, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QLineEdit, QWidget

from burnish_app.look.tokens import UNIT
from burnish_app.recipe.recipe_fields import RecipeField
from burnish_app.widgets.basic.text import caption


class NumberBox(QAbstractSpinBox):
    """Edits the number of a field. Any text may be typed; the schema judges it.

    Args:
        field: field of a number.

    Attributes:
        edited: signal without arguments, emitted when the person typed or stepped.
    """

    edited = Signal()

    def __init__(self, field: RecipeField, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._field = field
        self._edit: QLineEdit = self.lineEdit()
        self._edit.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._edit.textEdited.connect(lambda _text: self.edited.emit())
        self._edit.textChanged.connect(lambda _text: self._place_unit())
        self._unit = caption(field.unit)
        self._unit.setParent(self._edit)
        self._unit.setWordWrap(False)
        self._unit.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        self._unit.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._unit.setVisible(bool(field.unit))
        self._place_unit()

    def value(self) -> Any:
        """Return the value as typed; a text where it is no number."""
        return self._field.from_text(self.text())

    def show_value(self, value: Any) -> None:
        """Show a value without emitting `edited`."""
        text = self._field.as_text(value)
        if text != self.text():
            self.setText(text)

    def setText(self, text: str) -> None:
        """Replace the text without emitting `edited`."""
        self._edit.setText(text)

    def stepBy(self, steps: int) -> None:
        """Step up, or down for a negative number; a page is one step too, as steps are large."""
        value = self.value()
        if isinstance(value, int | float):
            following = self._field.stepped(value, up=steps > 0)
            if following != value:
                self.setText(self._field.as_text(following))
                self.edited.emit()
        self.selectAll()

    def stepEnabled(self) -> QAbstractSpinBox.StepEnabledFlag:
        """Return in which directions there is another value."""
        value, found = self.value(), QAbstractSpinBox.StepEnabledFlag.StepNone
        if isinstance(value, int | float):
            for up, flag in (
                (True, QAbstractSpinBox.StepEnabledFlag.StepUpEnabled),
                (False, QAbstractSpinBox.StepEnabledFlag.StepDownEnabled),
            ):
                if self._field.stepped(value, up=up) != value:
                    found |= flag
        return found

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        """Accept any text: the schema's message stands beside the field."""
        return QValidator.State.Acceptable, text, position

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page: scrolling over a number must not change it."""
        event.ignore()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the unit at the right."""
        super().resizeEvent(event)
        self._place_unit()

    def _place_unit(self) -> None:
        """Put the unit behind the number; it goes where a word stands for the number."""
        shown = bool(self._field.unit) and not (self._field.zero and self.text() == self._field.zero)
        self._unit.setVisible(shown)
        size = self._unit.sizeHint()
        self._unit.setGeometry(self._edit.width() - size.width() - 6, 0, size.width(), self._edit.height())
        self._edit.setTextMargins(6, 0, size.width() + UNIT + 4 if shown else 6, 0)
