"""The card with the verdicts of a finished duel: who is better in what, by how much, with intervals."""

from __future__ import annotations

from functools import partial

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card, IconLabel
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, fact_line, headline, set_tone
from burnish_app.widgets.duel.interval_plot import IntervalPlot, legend_text
from burnish_app.wording.duel_text import amount_text, conclusion_text, conditions_text, difference_text
from burnish_engine.contract.run.duels import DuelFacts

_NAME_PX = 140


class DuelVerdictCard(Card):
    """Shows the verdicts of a duel."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: object = None
        self._mark = IconLabel("success", 24, "success")
        self.headline = headline("")
        self.headline.setMinimumWidth(240)
        head = row(self._mark, self.headline, spacing_px=UNIT + 4)
        laid_out = head.layout()
        assert isinstance(laid_out, QHBoxLayout)
        laid_out.setStretch(1, 1)
        self.conditions, self.caution, self.legend = body(""), caption(""), caption("")
        self._measures, self._plots = QVBoxLayout(), QVBoxLayout()
        self._measures.setSpacing(UNIT)
        self._plots.setSpacing(GAP_PX)
        fill(self.body, head, UNIT, self._plots, self.legend, UNIT, self._measures, UNIT, self.conditions, self.caution)

    def show_duel(self, duel: DuelFacts) -> None:
        """Show the verdicts of a finished duel."""
        if duel == self._shown:
            return
        self._shown = duel
        won = any(one.winner is not None for one in duel.verdicts if one.measure == duel.judge)
        self._mark.setVisible(won)
        self.headline.setText(duel.headline)
        set_tone(self.headline, "success" if won else "")
        level = next((one.level for one in duel.verdicts), 0.95)
        self.legend.setText(legend_text(level))
        self._show_plots(duel)
        clear(self._measures)
        for one in duel.verdicts:
            words = ". ".join(part for part in (conclusion_text(one), difference_text(one)) if part)
            pair = f", {one.names[0]} / {one.names[1]}" if _is_between_several(duel) else ""
            self._measures.addWidget(
                fact_line(f"{one.title.capitalize()}{pair}", words, hint=one.text, name_px=_NAME_PX)
            )
        differ = any(check.verdict == "differs" for check in duel.checks)
        self.conditions.setText(conditions_text(duel))
        set_tone(self.conditions, "error" if differ else "muted")
        self.caution.setText(duel.caution)

    def _show_plots(self, duel: DuelFacts) -> None:
        clear(self._plots)
        first, second = duel.sides[0].name, duel.sides[1].name
        several = _is_between_several(duel)
        lower = tr("{name} is lower")
        by_loss = duel.judge == "held_out_loss"
        label = tr("Held-out loss, nats") if by_loss else tr("Pairs preferred wrongly, points")
        losses = IntervalPlot(
            tr("Differences in {measure} with intervals").format(measure=label),
            tr("the first is lower") if several else lower.format(name=first),
            tr("the second is lower") if several else lower.format(name=second),
            lambda one: f"{one.names[0]} – {one.names[1]}" if several else label,
            partial(amount_text, "nats" if by_loss else "points"),
        )
        more = tr("{name} has more")
        shares = IntervalPlot(
            tr("Differences in speed, memory and energy with intervals"),
            tr("the second has more") if several else more.format(name=second),
            tr("the first has more") if several else more.format(name=first),
            lambda one: f"{one.title.capitalize()}: {one.names[0]}" if several else one.title.capitalize(),
            lambda value: f"{amount_text('share', value)} %",
        )
        judged = [one for one in duel.verdicts if one.measure == duel.judge]
        for plot, found in ((losses, judged), (shares, [one for one in duel.verdicts if one.form == "share"])):
            self._plots.addWidget(plot)
            plot.show_verdicts(found)


def _is_between_several(duel: DuelFacts) -> bool:
    """Whether verdicts are on other names than the two sides'."""
    return len(duel.sides) > 2 or bool(duel.tried)
