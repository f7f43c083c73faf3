"""The card of the engine: sets it up, updates, repairs, moves and removes it, and makes bundles for other PCs."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QMessageBox

from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.page_states.engine import EngineState, engine_state
from burnish_app.widgets.basic.buttons import ActionButton, primary, quiet, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.banner import ProgressBar

_BUNDLE_FILTER = tr("Bundles (*.zip)")


class EngineCard(Card):
    """Shows the engine's set-up and what can be done about it.

    Args:
        work: the engine's set-up.

    Attributes:
        headline: label of what there is to say, in a few words.
        lines: label of the sentences under it.
        problem: label of what failed.
        bar: bar of the work.
        primary: main button.
        buttons: further buttons, by name.
    """

    def __init__(self, work: EngineWork) -> None:
        super().__init__(
            tr("Engine"),
            tr("A Python of its own with torch and llama.cpp, apart from the window."),
            icon_name="hardware",
        )
        self._work = work
        self.headline, self.lines = heading(""), body("", "muted")
        self.problem, self.remedy = body("", "error"), caption("")
        self.lines.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.bar = ProgressBar()
        self.bar.setAccessibleName(tr("Progress of the engine's set-up"))
        self.primary = primary("", self.press)
        self.buttons: dict[str, ActionButton] = {
            "pause": secondary(tr("Pause"), work.pause, "pause"),
            "place": secondary(tr("Choose the drive"), self._choose_place, "folder"),
            "bundle_from": secondary(tr("Use a bundle"), self._choose_bundle, "open"),
            "roll_back": secondary("", work.roll_back),
            "updates": secondary(tr("Check for updates"), lambda: work.find(was_asked=True)),
            "repair": quiet(tr("Check and repair"), work.repair),
            "move": quiet(tr("Move"), self._choose_drive),
            "bundle": quiet(tr("Make a bundle"), self._make_bundle),
            "remove": quiet(tr("Remove"), self._ask_removal),
        }
        for part in (self.headline, self.bar, self.lines, self.problem, self.remedy):
            self.body.addWidget(part)
        self.body.addLayout(fill(FlowLayout(UNIT, UNIT), self.primary, *self.buttons.values()))
        work.changed.connect(lambda: self.apply(engine_state(work.facts)))
        self.apply(engine_state(work.facts))

    def apply(self, state: EngineState) -> None:
        """Show a state."""
        self.headline.setText(state.headline)
        self.lines.setText("\n".join(state.lines))
        self.lines.setVisible(bool(state.lines))
        self.problem.setText(state.problem[0])
        self.remedy.setText(state.problem[1])
        for label in (self.problem, self.remedy):
            label.setVisible(bool(label.text()))
        self.bar.set_share(state.share)
        self.bar.setAccessibleDescription(self.lines.text())
        self.bar.setVisible(state.has_bar)
        self.primary.setVisible(state.primary is not None)
        if state.primary is not None:
            self.primary.setText(state.primary.text)
            self.primary.setEnabled(state.primary.is_enabled)
        self.buttons["roll_back"].setText(state.rollback_text)
        for name, button in self.buttons.items():
            button.setVisible(name in state.buttons)
            button.setEnabled(name not in state.blocked)

    def press(self) -> None:
        """Do what the main button is for: continue, try again, set the found release up, or look for one."""
        if self._work.facts.problem[0] or self._work.facts.is_paused:
            self._work.again()
        elif self._work.facts.offered:
            self._work.set_up()
        else:
            self._work.find()

    def _choose_place(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, tr("Folder or drive for the engine"))
        if folder:
            self._work.choose_place(folder)

    def _choose_drive(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, tr("Folder or drive to move the engine to"))
        if folder:
            self._work.move_to(folder)

    def _choose_bundle(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, tr("Bundle of Burnish"), "", _BUNDLE_FILTER)
        if path:
            self._work.take_bundle(path)

    def _make_bundle(self) -> None:
        path, _ = QFileDialog.getSaveFileName(
            self, tr("Bundle for other PCs"), str(Path.home() / "burnish-bundle.zip"), _BUNDLE_FILTER
        )
        if path:
            self._work.bundle(path, [])

    def _ask_removal(self) -> None:
        asked = QMessageBox.question(
            self,
            tr("Remove the engine?"),
            tr("It has to be fetched again before anything can be trained. Your runs and models stay."),
        )
        if asked == QMessageBox.StandardButton.Yes:
            self._work.remove()
