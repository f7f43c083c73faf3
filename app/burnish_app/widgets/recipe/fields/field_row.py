"""One row of the recipe form: label with its reason or problem below it, the way back, and the editor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QEvent, QObject, QSize, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QStandardItemModel
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QListView,
    QPlainTextEdit,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from burnish_app.look.fonts import scaled_width
from burnish_app.look.language import tr
from burnish_app.look.tokens import CONTROL_PX, UNIT
from burnish_app.recipe.recipe_fields import PLACE, RecipeField
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import link
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, body, caption, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.recipe.fields.number_box import NumberBox
from burnish_app.widgets.recipe.fields.place_box import PlaceBox

_WORDS_PX = 180  # room from which the label stands beside the editor, not above it
_EDITOR_PX = 208
_AREA_PX = 280
_UNDONE_BY = (QKeySequence.StandardKey.Undo, QKeySequence.StandardKey.Redo)


def leave_to_page(watched: QObject, event: QEvent) -> bool:
    """Leave to the page what is the page's: undo and redo, of changes of all fields, and the wheel, which scrolls.

    Args:
        watched: field that the event is sent to.
        event: event.

    Returns:
        Whether the event is the page's, so that the field gets nothing of it.
    """
    is_pages = isinstance(watched, QComboBox) and event.type() == QEvent.Type.Wheel
    if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
        is_pages = any(event.matches(key) for key in _UNDONE_BY)
    if is_pages:
        event.ignore()
    return is_pages


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
        self._choices: Sequence[str] = field.choices
        self._suggested: Any = None
        self._has_suggestion = False
        self._reason = ""
        self._problem = ""
        self._idle = self._note = ""
        label = body(field.label)
        label.setToolTip(field.help)
        self.editor = self._make_editor()
        self.editor.setToolTip(field.help)
        self.editor.setAccessibleName(field.label)
        self.editor.installEventFilter(self)
        label.setBuddy(self.editor)
        self.beside = caption("")
        self.reset_button = link("", self.take_suggestion)
        is_area = field.kind in ("lines", "prose")
        middle = QWidget()
        if is_area:
            middle.setMinimumWidth(_AREA_PX)
            middle.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        else:
            middle.setFixedWidth(scaled_width(_EDITOR_PX))
        fill(QVBoxLayout(middle), self.editor, None)
        line = _RowLayout(2 * UNIT, 4)
        self._words = _Words(label, self.reset_button, self.beside)
        line.addWidget(self._words)
        line.addWidget(middle)
        self.setLayout(line)
        self.setProperty(PLACE_PROPERTY, f"recipe-reference.md#{field.section or 'top-level'}")
        self._show_state()

    def value(self) -> Any:
        """Return the value as typed; it need not be valid."""
        editor = self.editor
        if isinstance(editor, QCheckBox):
            return editor.isChecked()
        if isinstance(editor, QComboBox) and not isinstance(editor, PlaceBox):
            return editor.currentData()
        text = editor.toPlainText() if isinstance(editor, QPlainTextEdit) else editor.text()
        return self.field.from_text(text)

    def show_value(self, value: Any) -> None:
        """Show a value without emitting `edited`."""
        editor = self.editor
        before = editor.blockSignals(True)
        if isinstance(editor, QCheckBox):
            editor.setChecked(bool(value))
        elif isinstance(editor, QComboBox) and not isinstance(editor, PlaceBox):
            editor.setCurrentIndex(editor.findData(str(value)))
        elif isinstance(editor, NumberBox):
            editor.show_value(value)
        elif isinstance(editor, QPlainTextEdit):
            editor.setPlainText(self.field.as_text(value))
        elif self.field.as_text(value) != editor.text():
            editor.setText(self.field.as_text(value))
            editor.setCursorPosition(0)  # a long list is read from its beginning
        editor.blockSignals(before)
        self._show_state()

    def show_suggestion(self, value: Any, reason: str) -> None:
        """Keep the suggested value, to offer the way back from a different one.

        Args:
            value: suggested value.
            reason: sentence on the value that is shown.
        """
        if not self._has_suggestion or (value, reason) != (self._suggested, self._reason):
            self._suggested, self._reason, self._has_suggestion = value, reason, True
            self._show_state()

    def forget_suggestion(self, reason: str = "") -> None:
        """Forget the suggestion.

        Args:
            reason: sentence on the value that is shown; may be empty.
        """
        self._suggested, self._reason, self._has_suggestion = None, reason, False
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
            self.editor.setEnabled(not why)
            self._show_state()

    def show_note(self, note: str) -> None:
        """Show a note about the value; an empty text removes it."""
        if note != self._note:
            self._note = note
            self._show_state()

    def show_choices(self, choices: Sequence[str]) -> None:
        """Offer only some of the field's choices; the value stays. Rows without choices have no use for it.

        Args:
            choices: choices to offer.
        """
        if choices == self._choices or not isinstance(self.editor, QComboBox):
            return
        self._choices, view, items = choices, self.editor.view(), self.editor.model()
        if isinstance(view, QListView) and isinstance(items, QStandardItemModel):
            for number, choice in enumerate(self.field.choices):
                view.setRowHidden(number, choice not in choices)
                items.item(number).setEnabled(choice in choices)  # keys skip it too

    def show_places(self, places: Sequence[str]) -> None:
        """Offer places in the row that says where to run; other rows have no use for them.

        Args:
            places: places as a recipe names them.
        """
        if isinstance(self.editor, PlaceBox):
            self.editor.show_places(places)

    def inner_widgets(self) -> list[QWidget]:
        """Return the widgets whose layouts follow the row's texts, from the innermost to the row itself."""
        return [self._words.top, self._words, self]

    def take_suggestion(self) -> None:
        """Take the suggested value."""
        self.show_value(self._suggested)
        self.editor.setFocus()  # the button that had it goes
        self.edited.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave undo, redo and the wheel to the page."""
        return leave_to_page(watched, event) or super().eventFilter(watched, event)

    def _make_editor(self) -> QCheckBox | QComboBox | QPlainTextEdit | QLineEdit | NumberBox | PlaceBox:
        kind = self.field.kind
        if kind == "switch":
            check = QCheckBox()
            check.setMinimumHeight(CONTROL_PX)
            check.toggled.connect(self._on_edited)
            return check
        if kind == "choice":
            combo = ShorteningBox(by_content=True)
            for choice in self.field.choices:
                combo.addItem(self.field.choice_text(choice), choice)
            combo.currentTextChanged.connect(self._on_edited)
            return combo
        if kind in ("lines", "prose"):
            area = QPlainTextEdit()
            area.setFixedHeight(9 * UNIT)
            area.setTabChangesFocus(True)
            area.setPlaceholderText(tr("One a line") if kind == "lines" else "")
            area.textChanged.connect(self._on_edited)
            return area
        if kind in ("whole", "number"):
            box = NumberBox(self.field)
            box.edited.connect(self._on_edited)
            return box
        if self.field.key == PLACE:
            places = PlaceBox()
            places.edited.connect(self._on_edited)
            return places
        edit = QLineEdit()
        edit.setPlaceholderText(tr("Separated by commas") if kind == "list" else self.field.placeholder)
        edit.textEdited.connect(self._on_edited)
        return edit

    def _on_edited(self) -> None:
        self._show_state()
        self.edited.emit()

    def _show_state(self) -> None:
        suggested = self.field.as_text(self._suggested).replace("\n", ", ") if self._has_suggestion else ""
        differs = self._has_suggestion and not self._idle and self.value() != self._suggested
        self.reset_button.setVisible(differs)
        if differs:
            shown = self.field.choice_text(suggested) or tr("none")
            self.reset_button.setText(tr("Suggested: {shown}").format(shown=shown))
            self.reset_button.setAccessibleName(
                tr("{label}: back to the suggested {shown}").format(label=self.field.label, shown=shown)
            )
        reason = self._idle or " ".join(part for part in (self._reason, self._note) if part)
        text, tone = (self._problem, "error") if self._problem else (reason, "muted")
        self.beside.setText(text)
        self.beside.setVisible(bool(text))
        self.editor.setAccessibleDescription(text or self.field.help)
        set_tone(self.beside, tone)
        set_tone(self.editor, "error" if self._problem else "")


class _RowLayout(FlowLayout):
    """A flow layout whose lines stay at the top, beside those of a taller row."""

    _centers = False


class _Words(QWidget):
    """The label with the way back at its right, and the text below it. It takes the room that the editor leaves."""

    def __init__(self, label: QLabel, reset: QWidget, text: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumWidth(_WORDS_PX)
        self.top, line = QWidget(), FlowLayout(UNIT, 0)
        self.top.setMinimumHeight(CONTROL_PX)  # the label beside the middle of the editor
        self.top.setLayout(line)
        label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        label.setMinimumWidth(min(label.fontMetrics().horizontalAdvance(label.text()) + 2, _WORDS_PX))
        line.addWidget(label)
        line.addWidget(reset)
        fill(QVBoxLayout(self), self.top, text, None, spacing_px=0)

    def sizeHint(self) -> QSize:
        """Return the preferred size: as narrow as may be, so that the editor stays beside it."""
        return QSize(_WORDS_PX, super().sizeHint().height())
