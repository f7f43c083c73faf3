"""What was found in a dataset: figures, dropped rows with reasons, and how long the rows are."""

from __future__ import annotations

from PySide6.QtWidgets import QGridLayout, QVBoxLayout

from burnish_app.theme import UNIT
from burnish_app.widgets.card import Card
from burnish_app.widgets.histogram import LengthHistogram
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import Value, body, caption
from burnish_app.words import count_in_words, percent, plural
from burnish_engine.contract.facts import DatasetFacts

_SHAPES = {
    "messages": "conversations (messages)",
    "sharegpt": "conversations (ShareGPT)",
    "alpaca": "instructions (Alpaca)",
    "prompt_completion": "prompt and completion",
    "text": "plain text",
}
_MOST_ROWS_NAMED = 5


class FactsCard(Card):
    """Rows, tokens, what is learned, what was left out and why."""

    def __init__(self) -> None:
        super().__init__("What was found")
        self.rows = Value("Rows used")
        self.tokens = Value("Tokens", "", "Pieces of words, as the model reads them.")
        self.learned = Value(
            "Learned", "", "Share of the tokens that count in the loss: the replies, where only those are learned."
        )
        self.shape = Value("Kind of rows", "", "How the columns were read.", large=False)
        grid = QGridLayout()
        grid.setHorizontalSpacing(4 * UNIT)
        grid.setVerticalSpacing(UNIT + 4)
        for column, value in enumerate((self.rows, self.tokens, self.learned)):
            grid.addWidget(value, 0, column)
        grid.addWidget(self.shape, 1, 0, 1, 3)
        grid.setColumnStretch(3, 1)
        self.body.addLayout(grid)
        self.body.addSpacing(UNIT // 2)
        self._words = QVBoxLayout()
        self._words.setSpacing(UNIT // 2)
        self.body.addLayout(self._words)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts) -> None:
        """Show other facts."""
        dropped = sum(facts.dropped.values())
        used = facts.train_rows + facts.validation_rows
        self.rows.set(f"{used:,}", f"of {facts.rows:,}" if dropped else "all")
        self.tokens.set(count_in_words(facts.tokens))
        self.learned.set(percent(facts.supervised_tokens / facts.tokens) if facts.tokens else "–")
        self.shape.set(f"{_SHAPES.get(facts.shape, facts.shape)}, {facts.format.upper()}")
        clear(self._words)
        for reason, count in facts.dropped.items():
            where = _rows_in_words(facts.dropped_examples.get(reason, []), count)
            self._words.addWidget(body(f"{plural(count, 'row')} left out: {reason}{where}", "warning"))
        for warning in facts.warnings:
            self._words.addWidget(body(f"!  {warning}", "warning"))


def _rows_in_words(numbers: list[int], count: int) -> str:
    shown = [f"{number:,}" for number in numbers[:_MOST_ROWS_NAMED]]
    if not shown:
        return ""
    more = " ..." if count > len(shown) else ""
    return f" (row{'s' if len(shown) > 1 else ''} {', '.join(shown)}{more})"


class LengthsCard(Card):
    """How long the rows are, and what is cut."""

    def __init__(self) -> None:
        super().__init__("How long the rows are", "Tokens in a row; the rows count upward.")
        self.histogram = LengthHistogram()
        self._words = caption("")
        self.body.addWidget(self.histogram)
        self.body.addWidget(self._words)

    def show_facts(self, facts: DatasetFacts, cut_tokens: int) -> None:
        """Show other facts.

        Args:
            facts: As inspected.
            cut_tokens: Longest row of the recipe.
        """
        self.histogram.show_lengths(facts.lengths, cut_tokens)
        if facts.lengths is None:
            return
        cut = plural(facts.truncated_rows, "row is", "rows are")
        self._words.setText(
            f"Half are shorter than {facts.lengths.median:,.0f} tokens, 95 % shorter than {facts.lengths.p95:,.0f}, "
            f"the longest has {facts.lengths.longest:,}. "
            + (f"{cut} cut at {cut_tokens:,}." if facts.truncated_rows else "None is cut.")
        )
