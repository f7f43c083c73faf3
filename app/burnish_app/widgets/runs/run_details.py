"""The pane about the selected runs: figures, curve, tags and notes of one, or a list of several."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget

from burnish_app.comparison.best_run import delta_text
from burnish_app.item_models.runs import loss_cell_text, moment_text, steps_text, took_text
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import ElidedLabel, Value, body, caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.runs.run_cells import RunCurve
from burnish_app.wording.activity import run_title
from burnish_app.wording.numbers import facts_text, percent, plural, reward_text
from burnish_app.wording.plain_words import device_text, model_text, plain_words
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES
from burnish_engine.contract.run.notes import RunNotes, split_tags
from burnish_engine.contract.serve.replies import RunSummary

_KEEP_AFTER_MS = 800
_NOTES_PX, _CURVE_PX = 56, 200  # least height of the notes, largest of the curve
_MOST_LISTED = 12


class _Notes(QPlainTextEdit):
    """The box of notes, which takes what is left of the page's height."""

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(super().sizeHint().width(), self.minimumHeight())


class RunDetails(Card):
    """Shows one run in short, with its tags and notes, or the names of several.

    Attributes:
        noted: signal with (folder, tags, text) when the person changed tags or notes.
    """

    noted = Signal(str, list, str)

    def __init__(self) -> None:
        super().__init__(tr("Run"), icon_name="train")
        self.pill = Pill()
        self.corner.addWidget(self.pill)
        self.step, self.loss, self.held_out = Value(tr("Step")), Value(tr("Loss")), Value(tr("Held-out loss"))
        self.reward = Value(tr("Reward"), hint=tr("Mean reward of the newest replies."))
        self.delta = Value(tr("To best"), hint=tr("Held-out loss less that of the best run on the same rows."))
        self.accuracy = Value(
            tr("Preferred"),
            hint=tr(
                "Share of held-out pairs whose chosen reply the model prefers to the rejected one; of replies labeled "
                "good or bad, of those that it judges as labeled."
            ),
        )
        self.margin = Value(
            tr("Margin"), hint=tr("Mean reward of the chosen held-out replies less the rejected ones'.")
        )
        self.votes = Value(
            tr("Blind votes"),
            hint=tr("Replies found best on the page Try it, without knowing whose they are."),
            large=False,
        )
        self.took, self.started = Value(tr("Took")), Value(tr("Started"))
        self.message = body("")
        self._model, self._folder = caption(""), ElidedLabel(tone="muted")
        self.curve = RunCurve()
        self.curve.setMaximumHeight(_CURVE_PX)
        self.tags, self.notes = _edit(tr("Tags"), tr("Separated by commas")), _area(tr("Notes"))
        self._run: RunSummary | None = None
        self._keep = QTimer(self, singleShot=True, interval=_KEEP_AFTER_MS)
        self._keep.timeout.connect(self.keep_notes)
        self.tags.textEdited.connect(lambda _text: self._keep.start())
        self.tags.editingFinished.connect(self.keep_notes)
        self.notes.textChanged.connect(self._keep.start)
        self.body.addWidget(self._one(), 1)
        self._several = QWidget()
        self._listed = fill(QVBoxLayout(self._several))
        self._listed.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.body.addWidget(self._several, 1)
        self._several.hide()

    @property
    def values(self) -> tuple[Value, ...]:
        """The figures of the run."""
        learned = (self.loss, self.reward, self.held_out, self.accuracy, self.margin, self.delta)
        return (self.step, *learned, self.votes, self.took, self.started)

    def show_run(self, run: RunSummary, losses: Sequence[float], delta: float | None = None) -> None:
        """Show a run. What the person is typing about it stays.

        Args:
            run: summary of the run.
            losses: outline of its loss, or of its reward where it learns from rewards.
            delta: difference of its held-out loss to the best one; None: there is nothing to compare with.
        """
        if self._run is None or run.folder != self._run.folder:
            self.keep_notes()
            self._write(run.notes)
        elif not self._keep.isActive() and not self.tags.hasFocus() and not self.notes.hasFocus():
            self._write(run.notes)
        self._run = run
        self._holder.show()
        self._several.hide()
        self.set_heading(run_title(run))
        self.pill.set(RUN_STATUS_TEXT[run.standing], RUN_TONES.get(run.standing, "plain"))
        self._model.setText(facts_text(model_text(run.model), run.data, device_text(run.state.device)))
        for value, text in (
            (self.step, steps_text(run)),
            (self.loss, loss_cell_text(run.state.loss)),
            (self.reward, reward_text(run.state.reward)),
            (self.held_out, loss_cell_text(run.state.evaluation_loss)),
            (self.accuracy, "" if run.state.accuracy is None else percent(run.state.accuracy)),
            (self.margin, "" if run.state.margin is None else f"{run.state.margin:.3g}"),
            (self.delta, delta_text(delta)),
            (self.votes, run.votes.text),
            (self.took, took_text(run)),
            (self.started, moment_text(run.state.created, time.time())),
        ):
            value.set(text or "–", tone="success" if value is self.delta and delta == 0 else "")
            value.setVisible(bool(text))
        self.message.setText(plain_words(run.state.message))
        self.message.setVisible(bool(run.state.message))
        self._folder.setText(run.folder)
        self.curve.show_values(losses, of_rewards=run.state.reward is not None)

    def show_several(self, runs: Sequence[RunSummary], deltas: Mapping[str, float]) -> None:
        """List several runs, those with the lowest held-out loss first.

        Args:
            runs: summaries of the runs.
            deltas: difference of their held-out losses to the best one, by folder.
        """
        self.keep_notes()
        self._run = None
        self._holder.hide()
        self.set_heading(tr("{runs} selected").format(runs=plural(len(runs), "run")))
        self.pill.set("")
        clear(self._listed)
        ordered = sorted(runs, key=lambda run: (_loss(run) is None, _loss(run) or 0.0))
        for run in ordered[:_MOST_LISTED]:
            self._listed.addWidget(ElidedLabel(run_title(run)))
            parts = [loss_cell_text(_loss(run)), delta_text(deltas.get(run.folder)), RUN_STATUS_TEXT[run.standing]]
            self._listed.addWidget(caption("  ·  ".join(part for part in parts if part)))
            self._listed.addSpacing(UNIT // 2)
        if len(ordered) > _MOST_LISTED:
            self._listed.addWidget(caption(tr("and {n} more").format(n=len(ordered) - _MOST_LISTED)))
        self._several.show()

    def keep_notes(self) -> None:
        """Hand over what was typed and not kept yet."""
        if self._run is None or not self._keep.isActive():
            return
        self._keep.stop()
        tags, text = split_tags(self.tags.text()), self.notes.toPlainText()
        if (tuple(tags), text.strip()) != (self._run.notes.tags, self._run.notes.text):
            self.noted.emit(self._run.folder, tags, text)

    def _write(self, notes: RunNotes) -> None:
        tags = ", ".join(notes.tags)
        if split_tags(self.tags.text()) != list(notes.tags):
            self.tags.setText(tags)
            self.tags.setCursorPosition(0)
        if self.notes.toPlainText().strip() != notes.text:
            before = self.notes.blockSignals(True)
            self.notes.setPlainText(notes.text)
            self.notes.blockSignals(before)

    def _one(self) -> QWidget:
        self._holder = QWidget()
        column = fill(
            QVBoxLayout(self._holder),
            self._model,
            columns_layout(self.values, 3 * UNIT, line_px=UNIT + 4),
            self.message,
            (self.curve, 1),
            spacing_px=UNIT + 2,
        )
        for name, editor in ((tr("Tags"), self.tags), (tr("Notes"), self.notes)):
            label = caption(name)
            label.setBuddy(editor)
            column.addWidget(label)
            column.addWidget(editor, 1 if editor is self.notes else 0)
        column.addWidget(self._folder)
        return self._holder


def _edit(name: str, placeholder: str) -> QLineEdit:
    edit = QLineEdit()
    edit.setAccessibleName(name)
    edit.setPlaceholderText(placeholder)
    return edit


def _area(name: str) -> QPlainTextEdit:
    area = _Notes()
    area.setAccessibleName(name)
    area.setMinimumHeight(_NOTES_PX)
    area.setTabChangesFocus(True)
    area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
    return area


def _loss(run: RunSummary) -> float | None:
    return run.state.evaluation_loss
