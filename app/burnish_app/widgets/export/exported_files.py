"""The card of exported files and folders, each with a command that uses it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QPushButton, QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.state.run_folder import RunFolder
from burnish_app.widgets.basic.buttons import Slot, quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import ElidedLabel, caption
from burnish_app.widgets.basic.wrapping import FlowLayout


class ExportedFiles(Card):
    """Lists the files and folders that exports have made.

    Args:
        talk: function that the button "Talk to it" calls.
    """

    def __init__(self, talk: Slot) -> None:
        super().__init__(tr("Files"), icon_name="file")
        self._folder = Path()
        self._talk = talk
        self._lines = QVBoxLayout()
        self.body.addLayout(self._lines)
        self.corner.addWidget(quiet(tr("Open the folder"), lambda: _open(self._folder), "folder"))

    def show_files(self, folder: Path, found: RunFolder) -> None:
        """Replace the files shown.

        Args:
            folder: folder of the exported files.
            found: contents of the run's folder.
        """
        self._folder = folder
        clear(self._lines)
        for name in found.exported:
            path = folder / name
            self._add(
                path,
                _copier(
                    tr("Copy for burnish"), tr('burnish chat "{path}"').format(path=path), tr("talks to this file")
                ),
                _copier(
                    tr("Copy for llama.cpp"), tr('llama-cli -m "{path}"').format(path=path), tr("talks to this file")
                ),
            )
        for name in found.adapters:
            path = folder / name
            command = tr('llama-cli -m BASE.gguf --lora "{path}"').format(path=path)
            self._add(path, _copier(tr("Copy for llama.cpp"), command, tr("talks to a base model with this adapter")))
        for name in found.ollama:
            path = folder / name
            called = f"{found.name}-{name.removeprefix('ollama-')}".lower()
            command = tr('ollama create {called} -f "{value}"').format(called=called, value=path / "Modelfile")
            self._add(
                path,
                _copier(tr("Copy for Ollama"), command, tr("makes Ollama know it as {called}").format(called=called)),
            )
        if found.lm_studio:
            path = folder / "lmstudio"
            self._add(path, quiet(tr("Open"), lambda: _open(path)))
            self._lines.addWidget(caption(tr("Copy what is in this folder into LM Studio's models folder.")))
        self._lines.addWidget(row(secondary(tr("Talk to it"), self._talk, "chat"), None))

    def _add(self, path: Path, *buttons: QPushButton) -> None:
        label = ElidedLabel(path.name)
        label.setToolTip(str(path))
        line = FlowLayout()
        line.addWidget(label)
        line.addWidget(row(*buttons))
        self._lines.addLayout(line)


def _copier(text: str, command: str, does: str) -> QPushButton:
    button = quiet(text, partial(_copy, command), "copy")
    button.setToolTip(tr("Copies a command for the terminal that {does}: {command}").format(does=does, command=command))
    return button


def _copy(text: str) -> None:
    QGuiApplication.clipboard().setText(text)


def _open(folder: Path) -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
