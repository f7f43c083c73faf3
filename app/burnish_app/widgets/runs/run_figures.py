"""The card of a run's status: progress bar, figures, the guard's verdict, and what can be done at the end."""

from __future__ import annotations

import math
import time
from statistics import fmean

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy

from burnish_app.look.language import tr
from burnish_app.look.tokens import FIGURE_PX, UNIT
from burnish_app.state.time_left import run_seconds, run_time_left
from burnish_app.widgets.basic.buttons import row, secondary
from burnish_app.widgets.basic.card import Card, IconLabel
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ElidedLabel, Look, Value, body, caption, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout, columns_layout
from burnish_app.widgets.page.banner import ProgressBar
from burnish_app.widgets.runs.run_charts import loss_text
from burnish_app.wording.numbers import count_text, duration_text, left_text, percent
from burnish_app.wording.run_text import RunDescription, Tone, exchange_text, layers_text, plan_text, slower_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.state import ObservedStatus
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.smoothing import default_window, newest_mean
from burnish_engine.contract.units import memory_size

_ROUNDS = 10  # rounds of replies that figures are means of
_LOOKS: dict[Tone, Look] = {
    "plain": "",
    "live": "accent",
    "success": "success",
    "warning": "warning",
    "error": "error",
}


class RunFigures(Card):
    """Shows a run's status and figures, at the top of the page Train.

    While the run is live the page says its phase beside the name, so the headline is only shown for what has to be read
    first: that the run ended, and how.

    Attributes:
        next_page: signal with the key of the page that the person wants next.
    """

    next_page = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.headline = ElidedLabel(size_px=FIGURE_PX, bold=True, expands=False)
        self.detail = body("", "muted")
        self.detail.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._tick = IconLabel("success", 24, "success")
        self.acts = row(
            secondary(tr("Try it"), lambda: self.next_page.emit("try_out"), "chat"),
            secondary(tr("Export"), lambda: self.next_page.emit("export"), "export"),
        )
        self._head = row(self._tick, self.headline, spacing_px=UNIT + 4)
        top = fill(FlowLayout(UNIT + 4), self._head, self.detail, self.acts)
        self.bar = ProgressBar()
        self.step = Value(tr("Step"))
        self.loss = Value(
            tr("Loss, mean"),
            hint=tr(
                "Mean around the newest step, nats, as the chart draws it: cross entropy per supervised token, or the "
                "loss of a pair where preferences are learned. Lower is better."
            ),
        )
        self.held_out = Value(
            tr("Held-out loss"),
            hint=tr(
                "The same on rows that are not trained on. It should fall too. An export measures it anew on the "
                "first of these rows, in fp32, and says so where the two figures differ."
            ),
        )
        self.preferred = Value(
            tr("Preferred"),
            hint=tr(
                "Share of held-out pairs whose chosen reply the model prefers to the rejected one; of replies labeled "
                "good or bad, of those that it judges as labeled."
            ),
        )
        self.reward = Value(tr("Reward, mean"), hint=tr("Mean reward of the replies of the newest steps."))
        self.writing = Value(
            tr("Writing"), "tokens/s", tr("Tokens of its own replies a second, which it learns from then.")
        )
        self.speed = Value(
            tr("Speed"), "tokens/s", tr("Real tokens a second, padding excluded, mean of the last steps.")
        )
        self.memory = Value(tr("Memory"), hint=tr("Peak memory of the device so far, or of the process on the CPU."))
        self.elapsed = Value(tr("Elapsed"), hint=tr("Since the run began here, with loading and checks."))
        self.left = Value(tr("Time left"), hint=tr("To the end of the run, with checks, evaluations and saves."))
        fill(self.body, top, self.bar)
        self._values = (
            self.step,
            self.reward,
            self.loss,
            self.held_out,
            self.preferred,
            self.writing,
            self.speed,
            self.memory,
            self.elapsed,
            self.left,
        )
        line = columns_layout(self._values, 3 * UNIT, even=True)
        line.setContentsMargins(0, UNIT // 2, 0, 0)
        self.body.addLayout(line)
        self.slower = body("", "warning")
        self.slower.hide()
        self.body.addWidget(self.slower)
        self.plan = caption("")
        self.plan.setToolTip(
            tr(
                "The prediction was made before training, from the recipe and the machine: steps, checks, evaluations, "
                "prompts and saves. Loading comes on top."
            )
        )
        self.layers = caption("")
        fill(self.body, self.plan, self.layers)
        self.exchange = caption("")
        self.body.addWidget(self.exchange)

    def show_status(self, description: RunDescription, *, can_go_on: bool = True) -> None:
        """Show the status of the run.

        Args:
            description: status of the run.
            can_go_on: whether there is something trained, to talk to and to export.
        """
        self.headline.setText(description.headline)
        set_tone(self.headline, _LOOKS[description.tone])
        self.detail.setText(description.detail)
        self.detail.setVisible(bool(description.detail))
        is_live, is_done = description.tone == "live", description.tone == "success"
        self._head.setVisible(not is_live)
        self._tick.setVisible(is_done)
        self.acts.setVisible(is_done and can_go_on)
        self.bar.set_color("success" if is_done else "accent" if is_live else "muted")

    def draw(self, state: RunState, summary: RunSummary) -> None:
        """Show the figures, from the events or, until they are read, from the summary."""
        done = state.step or summary.state.step
        total = state.total_steps or summary.state.total_steps
        preparing = summary.standing == "running" and not done and state.phase != "evaluating"
        self.bar.set_share(None if preparing else done / total if total else 0.0)
        self.step.set(f"{done:,}", tr("of {total:,}").format(total=total) if total else "")
        self._draw_loss(state, summary)
        self._draw_rewards(state)
        speed = newest_mean(state.steps.tokens_per_s.values(), 10)
        self.speed.set(count_text(speed) if math.isfinite(speed) else "–")
        size, _, unit = memory_size(state.peak_bytes).partition(" ") if state.peak_bytes else ("–", "", "")
        self.memory.set(size, unit)
        planned = plan_text(state)
        if self.plan.text() != planned:
            self.plan.setText(planned)
        self.plan.setVisible(bool(planned))
        for label, (line, meant) in ((self.layers, layers_text(state)), (self.exchange, exchange_text(state))):
            if label.text() != line:
                label.setText(line)
                label.setToolTip(meant)
            label.setVisible(bool(line))
        self.draw_time(state, summary.standing)
        for value in self._values:
            value.setVisible(value.text != "–")

    def draw_time(self, state: RunState, status: ObservedStatus) -> None:
        """Show for how long the run has trained, and for how long it will, with the reason where that grew."""
        now, going = time.time(), status in ("running", "paused")
        left, spent = run_time_left(state, now) if going else None, run_seconds(state, now)
        self.left.set("–" if left is None else left_text(left))
        self.elapsed.set("–" if spent is None else duration_text(spent))
        why = slower_text(left)
        self.slower.setText(why)
        self.slower.setVisible(bool(why))

    def _draw_rewards(self, state: RunState) -> None:
        """Show what the newest replies of a run earn that learns from rewards; others have none."""
        newest = state.rewards.items()[-_ROUNDS:]
        self.reward.set(f"{fmean(one.reward for one in newest):.2f}" if newest else "–")
        speeds = [one.tokens_per_s for one in newest if one.tokens_per_s]
        self.writing.set(count_text(fmean(speeds)) if speeds else "–")

    def _draw_loss(self, state: RunState, summary: RunSummary) -> None:
        window = default_window(state.total_steps)
        losses = state.steps.loss.values()
        loss = newest_mean(losses, window) if losses else summary.state.loss
        bad = bool(losses) and not math.isfinite(losses[-1])
        text = "–" if state.rewards else _loss(loss)  # of rewards it says nothing
        self.loss.set(tr("not a number") if bad else text, tone="error" if bad else "")
        evaluations = state.evaluations.loss.values()
        held_out = state.result[1] if state.result else summary.state.evaluation_loss
        accuracy = state.of_result(state.evaluations.accuracy)
        self.preferred.set("–" if accuracy is None else percent(accuracy))
        worse = len(evaluations) > 1 and evaluations[-1] > evaluations[0]
        self.held_out.set(_loss(held_out), tone="warning" if worse else "")


def _loss(loss: float | None) -> str:
    return "–" if loss is None or math.isnan(loss) else loss_text(loss)
