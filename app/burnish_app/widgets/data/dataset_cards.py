"""Cards with the facts about a dataset: figures, row lengths, and what another maximum length would cut."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import Value, body, caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.data.histogram import LengthHistogram
from burnish_app.wording.data_text import cut_text
from burnish_app.wording.numbers import as_sentence, count_text, percent, plural
from burnish_engine.contract.facts.facts import DatasetFacts

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
        self.fill = Value(
            tr("Packing (passes full)"),
            "",
            tr("Share of a micro-batch's tokens that packing fills with rows; the rest is empty."),
        )
        self.lost = Value(tr("Truncated (cut)"), "", tr("Share of the tokens beyond the maximum length."))
        values = (self.rows, self.tokens, self.learned, self.fill, self.lost)
        self.body.addLayout(columns_layout(values, 3 * UNIT, even=True))
        self.extras = caption("")
        self.body.addWidget(self.extras)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts) -> None:
        """Replace the facts shown."""
        report = facts.report
        dropped = sum(facts.dropped.values())
        used = report.used_rows if report else facts.train_rows + facts.validation_rows
        self.rows.set(f"{used:,}", tr("of {rows:,}").format(rows=facts.rows) if dropped else "all")
        self.tokens.set(count_text(facts.tokens))
        self.learned.set(percent(facts.supervised_tokens / facts.tokens) if facts.tokens else "–")
        self.fill.set(percent(facts.fill) if facts.fill else "–")
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
    """Shows how long the rows are, what is cut, and what another maximum length would cut.

    Attributes:
        cut_chosen: signal with another maximum length, tokens.
    """

    cut_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__(tr("How long the rows are"), tr("Tokens in a row; the rows count upward."), icon_name="train")
        self.setMinimumWidth(_LENGTHS_PX)
        self._shown: tuple[DatasetFacts, int] | None = None
        self.histogram = LengthHistogram()
        self._summary = caption("")
        self._cuts = QGridLayout()
        self._cuts.setHorizontalSpacing(2 * UNIT)
        self._cuts.setVerticalSpacing(0)
        self._cuts.setColumnStretch(1, 1)
        self.body.addWidget(self.histogram)
        self.body.addWidget(self._summary)
        self.body.addLayout(self._cuts)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts, cut_tokens: int) -> None:
        """Replace the facts shown.

        Args:
            facts: facts about the data, from an inspection.
            cut_tokens: maximum length of the recipe, tokens.
        """
        if facts.lengths is None or (facts, cut_tokens) == self._shown:
            return
        self._shown = facts, cut_tokens
        self.histogram.show_lengths(facts.lengths, cut_tokens)
        cut = plural(facts.truncated_rows, tr("row is"), tr("rows are"))
        self._summary.setText(
            tr(
                "Half are shorter than {median:,.0f} tokens, 95 % shorter than {p95:,.0f}, the longest has "
                "{longest:,}. "
            ).format(median=facts.lengths.median, p95=facts.lengths.p95, longest=facts.lengths.longest)
            + (
                tr("{cut} cut at {cut_tokens:,}.").format(cut=cut, cut_tokens=cut_tokens)
                if facts.truncated_rows
                else tr("None is cut.")
            )
        )
        clear(self._cuts)
        lines = facts.report.cut_lines if facts.report else []
        for place, line in enumerate(lines if len(lines) > 1 else []):
            here = line.max_length == cut_tokens
            number = (
                body(f"{line.max_length:,}") if here else quiet(f"{line.max_length:,}", partial(self._choose, line))
            )
            number.setToolTip(
                tr("The longest row now.")
                if here
                else tr("Make {max_length:,} tokens the longest row.").format(max_length=line.max_length)
            )
            if here:
                number.setContentsMargins(7, 5, 7, 5)  # as wide and high as the buttons
            self._cuts.addWidget(number, place, 0, Qt.AlignmentFlag.AlignRight)
            self._cuts.addWidget(caption(cut_text(line, facts) + (tr("  ·  now") if here else "")), place, 1)

    def _choose(self, line: object) -> None:
        self.cut_chosen.emit(getattr(line, "max_length", 0))
