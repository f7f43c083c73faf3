"""One row of the recipe form: label, editor, unit, and the reason, the reset button or the problem beside it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QSizePolicy,
    QWidget,
)

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.recipe.recipe_fields import RecipeField
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.text import body, caption, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout

_LABEL_PX = 168
_EDITOR_PX = 200
_BESIDE_PX = 148  # room from which the text stands beside the editor, not below it


class FieldRow(QWidget):
    """Edits one field of the recipe. An invalid value may be typed; the row then shows the schema's message.

    Attributes:
        edited: signal without arguments, emitted when the person changed the value.
        field: field that the row edits.
    """

    edited = Signal()

    def __init__(self, field: RecipeField, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = field
        self._suggested: Any = None
        self._has_suggestion = False
        self._reason = ""
        self._problem = ""
        self._idle = self._note = ""
        label = body(field.label)
        label.setFixedWidth(_LABEL_PX)
        label.setToolTip(field.help)
        self._editor = self._make_editor()
        self._editor.setToolTip(field.help)
        self._editor.setAccessibleName(field.label)
        self._editor.setAccessibleDescription(field.help)
        label.setBuddy(self._editor)
        unit = body(field.unit, "muted")
        self._beside = caption("")
        self._beside.setContentsMargins(6, 0, 0, 0)  # in line with the text of the button that takes its place
        self._reset = quiet("", self.take_suggestion)
        unit.setWordWrap(False)
        middle = QWidget()
        middle.setFixedWidth(_EDITOR_PX)
        inner = QHBoxLayout(middle)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(UNIT)
        inner.addWidget(self._editor)
        if field.unit:
            inner.addWidget(unit)
        inner.addStretch(1)
        self._beside.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._beside.setMinimumWidth(_BESIDE_PX)
        line = FlowLayout(UNIT + 4, UNIT // 2)
        for widget in (label, middle, self._reset, self._beside):
            line.addWidget(widget)
        self.setLayout(line)
        self.setProperty(PLACE_PROPERTY, f"recipe-reference.md#{field.section or 'top-level'}")
        self._show_state()

    def value(self) -> Any:
        """Return the value as typed; it need not be valid."""
        editor = self._editor
        if isinstance(editor, QCheckBox):
            return editor.isChecked()
        if isinstance(editor, QComboBox):
            return editor.currentData()
        text = editor.toPlainText() if isinstance(editor, QPlainTextEdit) else editor.text()
        return self.field.from_text(text)

    def show_value(self, value: Any) -> None:
        """Show a value without emitting `edited`."""
        editor = self._editor
        before = editor.blockSignals(True)
        if isinstance(editor, QCheckBox):
            editor.setChecked(bool(value))
        elif isinstance(editor, QComboBox):
            editor.setCurrentIndex(editor.findData(str(value)))
        elif isinstance(editor, QPlainTextEdit):
            editor.setPlainText(self.field.as_text(value))
        else:
            editor.setText(self.field.as_text(value))
            editor.setCursorPosition(0)  # a long list is read from its beginning
        editor.blockSignals(before)
        self._show_state()

    def show_suggestion(self, value: Any, reason: str) -> None:
        """Keep the suggested value, to mark a different one and offer the way back.

        Args:
            value: suggested value.
            reason: reason in one sentence, shown while the value is the suggested one.
        """
        self._suggested, self._reason, self._has_suggestion = value, reason, True
        self._show_state()

    def forget_suggestion(self) -> None:
        """Forget the suggestion."""
        self._suggested, self._reason, self._has_suggestion = None, "", False
        self._show_state()

    def show_problem(self, problem: str) -> None:
        """Show what is wrong with the value; an empty text removes the message."""
        if problem != self._problem:
            self._problem = problem
            self._show_state()

    def show_idle(self, why: str) -> None:
        """Disable the editor and show why the field does not apply; an empty text enables it again."""
        if why != self._idle:
            self._idle = why
            self._editor.setEnabled(not why)
            self._show_state()

    def show_note(self, note: str) -> None:
        """Show a note about the value; an empty text removes it."""
        if note != self._note:
            self._note = note
            self._show_state()

    def take_suggestion(self) -> None:
        """Take the suggested value."""
        self.show_value(self._suggested)
        self.edited.emit()

    def _make_editor(self) -> QCheckBox | QComboBox | QPlainTextEdit | QLineEdit:
        kind = self.field.kind
        if kind == "switch":
            check = QCheckBox()
            check.toggled.connect(self._on_edited)
            return check
        if kind == "choice":
            combo = QComboBox()
            for choice in self.field.choices:
                combo.addItem(self.field.choice_text(choice), choice)
            combo.setFixedWidth(_EDITOR_PX)
            combo.currentTextChanged.connect(self._on_edited)
            return combo
        if kind in ("lines", "prose"):
            area = QPlainTextEdit()
            area.setFixedHeight(9 * UNIT)
            area.setTabChangesFocus(True)
            area.setPlaceholderText(tr("One a line") if kind == "lines" else "")
            area.textChanged.connect(self._on_edited)
            return area
        edit = QLineEdit()
        edit.setFixedWidth(_EDITOR_PX if kind in ("text", "list") else _EDITOR_PX // 2)
        if kind in ("whole", "number"):
            edit.setAlignment(Qt.AlignmentFlag.AlignRight)
        if kind == "list":
            edit.setPlaceholderText(tr("Separated by commas"))
        edit.textEdited.connect(self._on_edited)
        return edit

    def _on_edited(self) -> None:
        self._show_state()
        self.edited.emit()

    def _show_state(self) -> None:
        suggested = self.field.as_text(self._suggested).replace("\n", ", ") if self._has_suggestion else ""
        differs = bool(suggested) and not self._idle and self.value() != self._suggested
        self._reset.setVisible(differs)
        if differs:
            off = self.field.kind == "whole" and self._suggested == 0
            shown = tr("none") if off else self.field.choice_text(suggested)
            self._reset.setText(tr("Suggested: {shown}").format(shown=shown))
            self._reset.setAccessibleName(
                tr("{label}: back to the suggested {shown}").format(label=self.field.label, shown=shown)
            )
        reason = self._idle or " ".join(part for part in ("" if differs else self._reason, self._note) if part)
        text, tone = (self._problem, "error") if self._problem else (reason, "muted")
        self._beside.setText(text)
        self._beside.setVisible(bool(text))
        set_tone(self._beside, tone)
        set_tone(self._editor, "error" if self._problem else "")
