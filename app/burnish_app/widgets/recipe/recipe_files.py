"""Recipes as files: asks which one to read, or writes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from burnish_app.look.language import tr
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe


class RecipeFiles(QObject):
    """Import and export of a page's recipe.

    Args:
        page: page that the dialogs are about.
        current: function that returns the recipe to export.

    Attributes:
        chosen: signal with the path of a file that is to be read.
        exported: signal with the path of a file that was written.
        failed: signal with what happened and what to do about it.
    """

    chosen = Signal(str)
    exported = Signal(str)
    failed = Signal(str, str)

    def __init__(self, page: QWidget, current: Callable[[], Recipe]) -> None:
        super().__init__(page)
        self._page, self._current = page, current

    def ask_import(self) -> None:
        """Ask for the file to read."""
        self._ask(tr("Import a recipe"), lambda path: self.chosen.emit(str(path)), QFileDialog.AcceptMode.AcceptOpen)

    def ask_export(self) -> None:
        """Ask for the file to write."""
        self._ask(tr("Export the recipe"), self.write, QFileDialog.AcceptMode.AcceptSave)

    def write(self, path: Path) -> None:
        """Write the recipe to a file, with a comment on every key."""
        try:
            write_atomic(path, dump_recipe(self._current(), comments=True))
        except BurnishError as error:
            self.failed.emit(error.what, error.remedy)
        else:
            self.exported.emit(str(path))

    def _ask(self, title: str, slot: Callable[[Path], None], mode: QFileDialog.AcceptMode) -> None:
        dialog = QFileDialog(self._page, title, "", tr("Recipes (*.toml)"))
        dialog.setAcceptMode(mode)
        dialog.setDefaultSuffix("toml")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda path: slot(Path(path)))
        dialog.open()
