"""Asks for the file that a recipe is read from or written to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from burnish_app.look.language import tr


def choose_recipe_file(parent: QWidget, title: str, slot: Callable[[Path], object], *, save: bool) -> None:
    """Open a dialog for a TOML file, without waiting for it.

    Args:
        parent: widget that the dialog is about.
        title: title of the dialog.
        slot: function that is called with the file, once one was chosen.
        save: whether the file is to be written, not read.
    """
    dialog = QFileDialog(parent, title, "", tr("Recipes (*.toml)"))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave if save else QFileDialog.AcceptMode.AcceptOpen)
    dialog.setDefaultSuffix("toml")
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(lambda path: slot(Path(path)))
    dialog.open()
