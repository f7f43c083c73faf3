"""Buttons to undo and redo changes of a recipe, and the list of all changes."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QWidget

from burnish_app.look.language import tr
from burnish_app.recipe.history import RecipeHistory
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.wording.numbers import plural

_LISTED = 20


class ChangeBar(QWidget):
    """Offers undo, redo and the list of changes of a history.

    Args:
        history: history that the buttons are about.

    Attributes:
        wanted: signal with how many changes shall be done; see `RecipeHistory.go_to`.
    """

    wanted = Signal(int)

    def __init__(self, history: RecipeHistory) -> None:
        super().__init__()
        self._history = history
        self.undo_button = quiet("", self.undo, "undo")
        self.redo_button = quiet("", self.redo, "redo")
        self.list_button = quiet("", self._show_list, "clock")
        fill(QHBoxLayout(self), self.undo_button, self.redo_button, self.list_button, spacing_px=0)
        self.refresh()

    def undo(self) -> None:
        """Undo the last change."""
        self.wanted.emit(self._history.done - 1)

    def redo(self) -> None:
        """Redo the change that was undone last."""
        self.wanted.emit(self._history.done + 1)

    def refresh(self) -> None:
        """Follow the history."""
        done, changes = self._history.done, self._history.changes
        _describe(self.undo_button, tr("Undo"), changes[done - 1] if done else "", "Ctrl+Z")
        _describe(self.redo_button, tr("Redo"), changes[done] if done < len(changes) else "", "Ctrl+Y")
        self.undo_button.setEnabled(done > 0)
        self.redo_button.setEnabled(done < len(changes))
        self.setVisible(bool(changes))
        count = plural(len(changes), "change")
        self.list_button.setToolTip(tr("{count} since the suggestion, to go back to any").format(count=count))
        self.list_button.setAccessibleName(tr("List of {count}").format(count=count))

    def menu(self) -> QMenu:
        """Make the list of changes, newest first; choosing one undoes or redoes up to it."""
        menu = QMenu(self)
        changes = self._history.changes
        for number in range(len(changes), max(len(changes) - _LISTED, -1), -1):
            action = menu.addAction(changes[number - 1] if number else tr("Before all changes"))
            action.setCheckable(True)
            action.setChecked(number == self._history.done)
            action.triggered.connect(lambda _checked=False, number=number: self.wanted.emit(number))
        return menu

    def _show_list(self) -> None:
        menu = self.menu()
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self.list_button.mapToGlobal(QPoint(0, self.list_button.height())))


def _describe(button: QWidget, name: str, change: str, keys: str) -> None:
    text = f"{name}: {change}" if change else name
    button.setToolTip(f"{text} ({keys})")
    button.setAccessibleName(text)
