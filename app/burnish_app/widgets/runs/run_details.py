"""The card about the selected run: its figures, its curve, and what it said last."""

from __future__ import annotations

import time
from collections.abc import Sequence

from burnish_app.item_models.runs import loss_cell_text, moment_text, steps_text, took_text
from burnish_app.look.language import tr
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import ElidedLabel, Value, body, caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.runs.run_cells import RunCurve
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES
from burnish_engine.contract.serve.protocol import RunSummary


class RunDetails(Card):
    """Shows one run in short."""

    def __init__(self) -> None:
        super().__init__(tr("Run"), icon_name="train")
        self.pill = Pill()
        self.corner.addWidget(self.pill)
        self.step, self.loss, self.held_out = Value(tr("Step")), Value(tr("Loss")), Value(tr("Held-out loss"))
        self.took, self.started = Value(tr("Took")), Value(tr("Started"))
        self.message = body("")
        self._model, self._folder = caption(""), ElidedLabel(tone="muted")
        self.curve = RunCurve()
        values = (self.step, self.loss, self.held_out, self.took, self.started)
        self.body.addWidget(self._model)
        self.body.addLayout(columns_layout(values))
        self.body.addWidget(self.message)
        self.body.addWidget(self.curve, 1)
        self.body.addWidget(self._folder)

    def show_run(self, run: RunSummary, losses: Sequence[float]) -> None:
        """Show a run.

        Args:
            run: summary of the run.
            losses: outline of its loss.
        """
        self.set_heading(run.state.name or run.state.run)
        self.pill.set(RUN_STATUS_TEXT[run.standing], RUN_TONES.get(run.standing, "plain"))
        self._model.setText("  ·  ".join(part for part in (run.model, run.state.device) if part))
        for value, text in (
            (self.step, steps_text(run)),
            (self.loss, loss_cell_text(run.state.loss)),
            (self.held_out, loss_cell_text(run.state.evaluation_loss)),
            (self.took, took_text(run)),
            (self.started, moment_text(run.state.created, time.time())),
        ):
            value.set(text or "–")
            value.setVisible(bool(text))
        self.message.setText(run.state.message)
        self.message.setVisible(bool(run.state.message))
        self._folder.setText(run.folder)
        self.curve.show_values(losses)
