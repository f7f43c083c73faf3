"""Actions on an exported file: give it to a program, open its folder, copy a command that uses it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QPushButton, QWidget

from burnish_app.look.language import tr
from burnish_app.widgets.basic.buttons import primary, quiet, secondary
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.serve.export_requests import ProgramName

PROGRAMS: dict[ProgramName, str] = {"ollama": "Ollama", "lm_studio": "LM Studio"}
"""Names of the programs that take a file."""
GIVES: dict[ProgramName, str] = {"lm_studio": tr("Open in LM Studio"), "ollama": tr("Add to Ollama")}
"""Texts of the buttons that give a file to a program, in their order."""


class FileActions(QWidget):
    """Offers what can be done with the file that is suggested.

    Attributes:
        hand_over: signal with (name of the file, `ProgramName`) when the person gives it to a program.
        tried: signal without arguments, emitted to talk to the file.
    """

    hand_over = Signal(str, str)
    tried = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._line = FlowLayout()
        self.setLayout(self._line)
        self.setAccessibleName(tr("What to do with it"))
        self.hide()

    def show_file(self, path: Path | None, programs: Sequence[ProgramName], *, is_busy: bool) -> None:
        """Show the actions.

        Args:
            path: file; None: there is none on this disk.
            programs: programs that are installed here.
            is_busy: whether a program is taking a file, so that no other one may.
        """
        clear(self._line)
        self.setVisible(path is not None)
        if path is None:
            return
        self._line.addWidget(primary(tr("Try it"), self.tried.emit, "chat"))
        for program, text in GIVES.items():
            if program in programs:
                give = secondary(text, partial(self.hand_over.emit, path.name, program), "export")
                give.setEnabled(not is_busy)
                self._line.addWidget(give)
        self._line.addWidget(secondary(tr("Open the folder"), partial(open_folder, path.parent), "folder"))
        command = tr('burnish chat "{path}"').format(path=path)
        self._line.addWidget(as_copier(secondary(tr("Copy command"), None, "copy"), command, tr("talks to this file")))


def copier(text: str, command: str, does: str) -> QPushButton:
    """Make a button that copies a command.

    Args:
        text: text of the button.
        command: command for the terminal.
        does: what the command does, behind "that".
    """
    return as_copier(quiet(text, None, "copy"), command, does)


def as_copier(button: QPushButton, command: str, does: str) -> QPushButton:
    """Let a button copy a command; see `copier`."""
    button.clicked.connect(lambda: QGuiApplication.clipboard().setText(command))
    button.setAccessibleName(tr("Copy: {what}").format(what=button.text()))
    button.setToolTip(tr("Copies a command for the terminal that {does}: {command}").format(does=does, command=command))
    return button


def open_folder(folder: Path) -> None:
    """Show a folder in the system's file manager."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
