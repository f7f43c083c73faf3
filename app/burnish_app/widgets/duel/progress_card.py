"""The card about a duel that is running: how many runs were made, and the one that is being made."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, headline
from burnish_app.widgets.basic.wrapping import ColumnsLayout
from burnish_app.widgets.compare.swatch import Swatch
from burnish_app.widgets.page.banner import ProgressBar
from burnish_app.wording.duel_text import progress_text, rate_text, result_text, run_text, share_done, time_left_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.run.duels import DuelFacts, DuelRun

_MOST = 30
_MADE_PX = 190  # least width of a run that was made


class DuelProgressCard(Card):
    """Shows how far a duel is."""

    def __init__(self) -> None:
        super().__init__(tr("Duel"), icon_name="duel")
        self.state, self.now, self.message = headline(""), body("", "muted"), body("", "warning")
        self.bar = ProgressBar()
        self._made: object = None
        self._runs = ColumnsLayout(3 * UNIT, UNIT, even=True)
        self._about = caption("")
        fill(self.body, self.state, self.bar, self.now, self.message, self._about, self._runs)

    def show_duel(self, duel: DuelFacts) -> None:
        """Show a duel as it is now."""
        self.set_heading(tr(" against ").join(side.name for side in duel.sides))
        left = time_left_text(duel)
        self.state.setText(progress_text(duel) + (f", {left}" if left else ""))
        self.bar.set_share(share_done(duel))
        self.bar.set_color({"running": "accent", "finished": "success"}.get(duel.status, "muted"))
        now = ""
        if duel.current is not None:
            run = duel.current
            steps = tr("step {step} of {total}").format(step=f"{run.step:,}", total=f"{run.total_steps:,}")
            begun = steps if run.total_steps else tr("starting")
            words = tr("Now {run}; {state}.") if duel.status == "running" else tr("Next {run}.")
            now = words.format(run=run_text(duel, run), state=begun)
        self.now.setText(now)
        self.now.setVisible(bool(now))
        self.message.setText(plain_words(duel.message))
        self.message.setVisible(bool(duel.message))
        by_loss = duel.judge == "held_out_loss"
        self._about.setText(
            tr("Learning rate, seed and held-out loss of each run:")
            if by_loss
            else tr("Learning rate, seed and result of each run:")
        )
        self._about.setVisible(bool(duel.made))
        if duel.made != self._made:
            self._made = duel.made
            clear(self._runs)
            for run in duel.made[-_MOST:]:
                self._runs.addWidget(_made(duel, run))


def _made(duel: DuelFacts, run: DuelRun) -> QWidget:
    words = tr("{rate}, seed {seed}: {result}").format(
        rate=rate_text(run.rate), seed=run.seed, result=result_text(duel, run)
    )
    label = caption(words, "warning" if run.ended == "diverged" else "muted")
    label.setWordWrap(False)
    made = row(Swatch(run.side), label, None)
    made.setToolTip(run_text(duel, run))
    made.setMinimumWidth(scaled(_MADE_PX))
    return made
