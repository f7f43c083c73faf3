"""The card of exported files and folders, each with a command that uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.state.run_folder import RunFolder
from burnish_app.widgets.basic.buttons import Slot, quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ElidedLabel, Look, body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.export.file_actions import GIVES, copier, open_folder
from burnish_app.wording.numbers import facts_text
from burnish_engine.contract.files import is_file
from burnish_engine.contract.serve.export_requests import ProgramName
from burnish_engine.contract.units import file_size


@dataclass(frozen=True)
class Outcome:
    """Outcome of giving a file to a program.

    Attributes:
        text: sentence.
        tone: look of the sentence.
        busy: whether it is still running.
    """

    text: str
    tone: Look = "muted"
    busy: bool = False


class ExportedFiles(Card):
    """Lists the files and folders that exports have made.

    Args:
        talk: function that the button "Try it" calls.

    Attributes:
        hand_over: signal with (name of the file, `ProgramName`) when the person gives a file to a program.
    """

    hand_over = Signal(str, str)

    def __init__(self, talk: Slot) -> None:
        super().__init__(tr("Files"), icon_name="file")
        self._folder, self._found = Path(), RunFolder()
        self._programs: list[ProgramName] = []
        self._outcomes: dict[str, Outcome] = {}
        self._talk = talk
        self._lines = QVBoxLayout()
        self.body.addLayout(self._lines)
        self._open = quiet(tr("Open the folder"), lambda: open_folder(self._folder), "folder")
        self.corner.addWidget(self._open)
        self._leading = ""

    @property
    def programs(self) -> Sequence[ProgramName]:
        """The programs that are installed here."""
        return self._programs

    @property
    def is_busy(self) -> bool:
        """Whether a program is taking a file."""
        return any(outcome.busy for outcome in self._outcomes.values())

    def show_files(self, folder: Path, found: RunFolder, *, leading: str = "") -> None:
        """Replace the files shown.

        Args:
            folder: folder of the exported files.
            found: contents of the run's folder.
            leading: name of the file that is given to programs elsewhere on the page; empty: none.
        """
        self._leading = leading
        self._open.setVisible(not leading)
        if folder != self._folder:
            self._outcomes.clear()
        self._folder, self._found = folder, found
        self._fill()

    def offer(self, programs: Sequence[ProgramName]) -> None:
        """Offer to give files to the programs that are installed."""
        if list(programs) != self._programs:
            self._programs = list(programs)
            self._fill()

    def show_outcome(self, name: str, outcome: Outcome | None) -> None:
        """Show below a file what became of giving it to a program; None: nothing."""
        self._outcomes.pop(name, None)
        if outcome is not None:
            self._outcomes[name] = outcome
        self._fill()

    def _fill(self) -> None:
        folder, found = self._folder, self._found
        clear(self._lines)
        for name in found.exported:
            path = folder / name
            self._add(
                path,
                *[self._giver(name, one) for one in GIVES if one in self._programs and name != self._leading],
                copier(tr("burnish command"), tr('burnish chat "{path}"').format(path=path), tr("talks to this file")),
                copier(
                    tr("llama.cpp command"),
                    tr('llama-cli -m "{path}"').format(path=path),
                    tr("talks to this file"),
                ),
            )
            if (outcome := self._outcomes.get(name)) is not None:
                self._lines.addWidget(body(outcome.text, outcome.tone))
        for name in found.adapters:
            path = folder / name
            command = tr('llama-cli -m BASE.gguf --lora "{path}"').format(path=path)
            self._add(path, copier(tr("llama.cpp command"), command, tr("talks to a base model with this adapter")))
        for name in found.ollama:
            path = folder / name
            called = f"{found.name}-{name.removeprefix('ollama-')}".lower()
            command = tr('ollama create {called} -f "{value}"').format(called=called, value=path / "Modelfile")
            self._add(
                path,
                copier(tr("Ollama command"), command, tr("makes Ollama know it as {called}").format(called=called)),
            )
        if found.lm_studio and "lm_studio" not in self._programs:
            path = folder / "lmstudio"
            self._add(path, quiet(tr("Open"), lambda: open_folder(path)))
            self._lines.addWidget(caption(tr("Copy what is in this folder into LM Studio's models folder.")))
        if not self._leading:
            self._lines.addWidget(row(secondary(tr("Try it"), self._talk, "chat"), None))

    def _giver(self, name: str, program: ProgramName) -> QPushButton:
        button = secondary(GIVES[program], lambda: self.hand_over.emit(name, program), "export")
        button.setAccessibleName(f"{GIVES[program]}: {name}")
        button.setEnabled(not self.is_busy)  # one at a time
        return button

    def _add(self, path: Path, *buttons: QPushButton) -> None:
        size = path.stat().st_size if is_file(path) else 0
        label = ElidedLabel(facts_text(path.name, file_size(size) if size else ""))
        label.setToolTip(str(path))
        actions = FlowLayout()
        for button in buttons:
            actions.addWidget(button)
        line = fill(FlowLayout(), label, actions)
        self._lines.addLayout(line)
