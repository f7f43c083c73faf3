"""What was found in a dataset: figures, how long the rows are, and what a longest row would cut."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout

from burnish_app.data_words import cut_in_words
from burnish_app.theme import UNIT
from burnish_app.widgets.buttons import quiet
from burnish_app.widgets.card import Card
from burnish_app.widgets.histogram import LengthHistogram
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import Value, body, caption
from burnish_app.widgets.wrapping import in_columns
from burnish_app.words import as_sentence, count_in_words, percent, plural
from burnish_engine.contract.facts import DatasetFacts

_LENGTHS_PX = 320  # at least, to have the figures beside them


class FactsCard(Card):
    """Rows, tokens, what is learned, and how full passes are."""

    def __init__(self) -> None:
        super().__init__("What was found")
        self.rows = Value("Rows used")
        self.tokens = Value("Tokens", "", "Pieces of words, as the model reads them.")
        self.learned = Value(
            "Learned", "", "Share of the tokens that count in the loss: the replies, where only those are learned."
        )
        self.fill = Value("Passes full", "", "How much of a pass's tokens packing filled with rows; the rest is empty.")
        self.lost = Value("Lost by cutting", "", "Share of the tokens that lie behind the longest row.")
        values = (self.rows, self.tokens, self.learned, self.fill, self.lost)
        self.body.addLayout(in_columns(values, 3 * UNIT, even=True))
        self.extras = caption("")
        self.body.addWidget(self.extras)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts) -> None:
        """Show other facts."""
        report = facts.report
        dropped = sum(facts.dropped.values())
        used = report.used_rows if report else facts.train_rows + facts.validation_rows
        self.rows.set(f"{used:,}", f"of {facts.rows:,}" if dropped else "all")
        self.tokens.set(count_in_words(facts.tokens))
        self.learned.set(percent(facts.supervised_tokens / facts.tokens) if facts.tokens else "–")
        self.fill.set(percent(facts.fill) if facts.fill else "–")
        lost = report.tokens_lost if report else 0
        share = lost / max(facts.tokens + lost, 1)
        self.lost.set(percent(share, 1) if lost else "nothing", look="warning" if share > 0.02 else "")
        told = []
        if report is not None and report.sampled_rows:
            told.append(f"estimated from {report.sampled_rows:,} rows")
        if report is not None and report.called_rows:
            told.append(f"tools are called in {plural(report.called_rows, 'row')}")
        if report is not None and report.thoughtful_rows:
            told.append(f"{plural(report.thoughtful_rows, 'row')} with thoughts")
        self.extras.setText(as_sentence("; ".join(told)))
        self.extras.setVisible(bool(told))


class LengthsCard(Card):
    """How long the rows are, what is cut, and what another longest row would cut.

    Attributes:
        cut_chosen: Emits another longest row, tokens.
    """

    cut_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__("How long the rows are", "Tokens in a row; the rows count upward.")
        self.setMinimumWidth(_LENGTHS_PX)
        self._shown: tuple[DatasetFacts, int] | None = None
        self.histogram = LengthHistogram()
        self._words = caption("")
        self._cuts = QGridLayout()
        self._cuts.setHorizontalSpacing(2 * UNIT)
        self._cuts.setVerticalSpacing(0)
        self._cuts.setColumnStretch(1, 1)
        self.body.addWidget(self.histogram)
        self.body.addWidget(self._words)
        self.body.addLayout(self._cuts)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts, cut_tokens: int) -> None:
        """Show other facts.

        Args:
            facts: As inspected.
            cut_tokens: Longest row of the recipe.
        """
        if facts.lengths is None or (facts, cut_tokens) == self._shown:
            return
        self._shown = facts, cut_tokens
        self.histogram.show_lengths(facts.lengths, cut_tokens)
        cut = plural(facts.truncated_rows, "row is", "rows are")
        self._words.setText(
            f"Half are shorter than {facts.lengths.median:,.0f} tokens, 95 % shorter than {facts.lengths.p95:,.0f}, "
            f"the longest has {facts.lengths.longest:,}. "
            + (f"{cut} cut at {cut_tokens:,}." if facts.truncated_rows else "None is cut.")
        )
        clear(self._cuts)
        lines = facts.report.cut_lines if facts.report else []
        for place, line in enumerate(lines if len(lines) > 1 else []):
            here = line.max_length == cut_tokens
            number = (
                body(f"{line.max_length:,}") if here else quiet(f"{line.max_length:,}", partial(self._choose, line))
            )
            number.setToolTip("The longest row now." if here else f"Make {line.max_length:,} tokens the longest row.")
            if here:
                number.setContentsMargins(7, 5, 7, 5)  # as wide and high as the buttons
            self._cuts.addWidget(number, place, 0, Qt.AlignmentFlag.AlignRight)
            self._cuts.addWidget(caption(cut_in_words(line, facts) + ("  ·  now" if here else "")), place, 1)

    def _choose(self, line: object) -> None:
        self.cut_chosen.emit(getattr(line, "max_length", 0))
