"""Cards with the facts about a dataset: figures, and row lengths with what is cut."""

from __future__ import annotations

from PySide6.QtCore import Signal

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.length_bins import Steps
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import Value, caption, heading
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.data.histogram import LengthHistogram
from burnish_app.wording.data_text import RowFate, cut_text, long_row_fate
from burnish_app.wording.numbers import as_sentence, count_text, percent, plural
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_data import DataSection

_LENGTHS_PX = 320  # at least, to have the figures beside them


class FactsCard(Card):
    """Shows rows, tokens, the supervised share, how full micro-batches are, and what was cut."""

    def __init__(self) -> None:
        super().__init__(tr("What was found"), icon_name="data")
        self.rows = Value(tr("Rows used"))
        self.tokens = Value(tr("Tokens"), "", tr("Pieces of words, as the model reads them."))
        self.learned = Value(
            tr("Supervised (learned)"),
            "",
            tr("Share of the tokens that count in the loss: the replies, where only those are learned."),
        )
        self.lost = Value(tr("Truncated (cut)"), "", tr("Share of the tokens beyond the maximum length."))
        values = (self.rows, self.tokens, self.learned, self.lost)
        self.body.addLayout(columns_layout(values, 3 * UNIT, even=True))
        self.extras = caption("")
        fill(self.body, self.extras, None)

    def show_facts(self, facts: DatasetFacts) -> None:
        """Replace the facts shown."""
        report = facts.report
        dropped = sum(facts.dropped.values())
        used = report.used_rows if report else facts.train_rows + facts.validation_rows
        self.rows.set(f"{used:,}", tr("of {rows:,}").format(rows=facts.rows) if dropped else "all")
        self.tokens.set(count_text(facts.tokens))
        self.learned.set(percent(facts.supervised_tokens / facts.tokens) if facts.tokens else "–")
        lost = report.tokens_lost if report else 0
        share = lost / max(facts.tokens + lost, 1)
        self.lost.set(percent(share, 1) if lost else "nothing", tone="warning" if share > 0.02 else "")
        parts = []
        if report is not None and report.sampled_rows:
            parts.append(tr("estimated from {sampled_rows:,} rows").format(sampled_rows=report.sampled_rows))
        if report is not None and report.called_rows:
            parts.append(tr("tools are called in {called_rows}").format(called_rows=plural(report.called_rows, "row")))
        if report is not None and report.thoughtful_rows:
            parts.append(
                tr("{thoughtful_rows} with thoughts").format(thoughtful_rows=plural(report.thoughtful_rows, "row"))
            )
        self.extras.setText(as_sentence("; ".join(parts)))
        self.extras.setVisible(bool(parts))


class LengthsCard(Card):
    """Shows how long the rows are, and where they are cut; the line can be dragged.

    Attributes:
        cut_chosen: signal with another maximum length, tokens.
    """

    cut_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__(
            tr("How long the rows are"), tr("Tokens in a row; drag the line to cut longer ones."), icon_name="train"
        )
        self.setMinimumWidth(_LENGTHS_PX)
        self._steps: Steps = []
        self._fate: RowFate = "cut"
        self.histogram = LengthHistogram()
        self.histogram.moved.connect(self._show_cut)
        self.histogram.cut_chosen.connect(self.cut_chosen)
        self.cut = heading("")
        self._summary = caption("")
        fill(self.body, self.cut, self.histogram, self._summary, None)

    def show_facts(self, facts: DatasetFacts, data: DataSection) -> None:
        """Replace the facts shown.

        Args:
            facts: facts about the data, from an inspection.
            data: data section of the recipe.
        """
        steps = facts.report.length_steps if facts.report else []
        self.setVisible(facts.lengths is not None and len(steps) > 1)
        if facts.lengths is None or len(steps) < 2:
            return
        self._fate = long_row_fate(facts.shape, data.overlong)
        self._steps = [*steps, *_exact_cuts(facts)] if self._fate == "cut" else steps
        self.histogram.show_lengths(steps, data.max_length, self._fate)
        self._show_cut(data.max_length)
        self._summary.setText(
            tr(
                "Half are shorter than {median:,.0f} tokens, 95 % shorter than {p95:,.0f}, the longest has {longest:,}."
            ).format(median=facts.lengths.median, p95=facts.lengths.p95, longest=facts.lengths.longest)
        )

    def _show_cut(self, tokens: int) -> None:
        self.cut.setText(cut_text(self._steps, tokens, self._fate))


def _exact_cuts(facts: DatasetFacts) -> Steps:
    """Return what usual lengths cut, the recipe's own among them: it may lie between two steps, far from either."""
    lines = facts.report.cut_lines if facts.report else []
    return [(line.max_length, line.rows_cut, line.tokens_lost) for line in lines]
