"""The run that a person most likely goes on with, large: its curve, its losses, and what comes next."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from burnish_app.item_models.runs import loss_cell_text, moment_text
from burnish_app.look.language import tr
from burnish_app.look.tokens import FIGURE_PX, GAP_PX, UNIT
from burnish_app.widgets.basic.buttons import primary, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import ElidedLabel, Value, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.runs.recent_run import run_facts
from burnish_app.widgets.runs.run_cells import RunCurve
from burnish_app.wording.activity import run_title
from burnish_app.wording.numbers import reward_text
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES
from burnish_engine.contract.serve.replies import RunSummary

_CURVE_PX = 132


class RunToContinue(Card):
    """Offers the newest run.

    Attributes:
        opened: signal with the folder of the run and the key of the page to show it on.
        name: name of the run.
        curve: its losses, or its rewards where it learns from those.
        loss: its newest loss.
        reward: mean reward of its newest replies.
        held_out: its held-out loss.
        go_on: button that leads to the run.
        try_out: button that leads to talking with it, where it is finished.
    """

    opened = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._folder = ""
        self.name = ElidedLabel("", size_px=FIGURE_PX, bold=True, expands=False)
        self._pill = Pill()
        self._facts = caption("")
        self.curve = RunCurve()
        self.curve.setMinimumHeight(_CURVE_PX)
        self.loss, self.reward, self.held_out = Value(tr("Loss")), Value(tr("Reward")), Value(tr("Held-out loss"))
        self.go_on = primary("", lambda: self.opened.emit(self._folder, "train"), "next")
        self.try_out = secondary(tr("Try it"), lambda: self.opened.emit(self._folder, "try_out"), "chat")
        self.export = secondary(tr("Export"), lambda: self.opened.emit(self._folder, "export"), "export")
        words = QWidget()
        fill(
            QVBoxLayout(words),
            fill(FlowLayout(UNIT + 4, UNIT // 2), self.name, self._pill),
            self._facts,
            spacing_px=4,
        )
        figures = QWidget()
        fill(QVBoxLayout(figures), self.loss, self.reward, self.held_out, spacing_px=UNIT).addStretch(1)
        middle = QWidget()
        fill(QHBoxLayout(middle), (self.curve, 1), (figures, 0, Qt.AlignmentFlag.AlignTop), spacing_px=GAP_PX)
        acts = fill(FlowLayout(), self.go_on, self.try_out, self.export)
        fill(self.body, words, (middle, 1), acts, spacing_px=2 * UNIT)

    def show_run(self, run: RunSummary, losses: tuple[float, ...]) -> None:
        """Show a run and the outline of its losses, or of its rewards."""
        self._folder = run.folder
        title, state = run_title(run), run.state
        self.name.setText(tr("Go on with {name}").format(name=title))
        self._pill.set(RUN_STATUS_TEXT[run.standing], RUN_TONES.get(run.standing, "plain"))
        self._facts.setText("  ·  ".join(filter(None, (run_facts(run), moment_text(state.created, time.time())))))
        self.curve.show_values(losses, of_rewards=state.reward is not None)
        for value, text in (
            (self.loss, loss_cell_text(state.loss)),
            (self.reward, reward_text(state.reward)),
            (self.held_out, loss_cell_text(state.evaluation_loss)),
        ):
            value.set(text or "–")
            value.setVisible(bool(text))
        is_done = run.standing == "finished"
        self.go_on.setText(tr("Look at it") if is_done else tr("Open it"))
        self.try_out.setVisible(is_done)
        self.export.setVisible(is_done)
