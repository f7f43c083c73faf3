"""The browser of training rows, each with its supervised (learned) text colored."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import quiet, row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import ElidedLabel, caption
from burnish_app.widgets.data.example_view import ExampleView
from burnish_app.wording.numbers import percent, plural
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.serve.data_requests import PreviewRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import Preview


class RowBrowser(Card):
    """Shows one training row at a time. The first comes with the inspection; the others are requested."""

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(tr("As the model reads it"), icon_name="chat")
        self._client = client
        self._bench = bench
        self._facts: DatasetFacts | None = None
        self._row = 1
        self._rows = 0
        self._asked = ""
        self.view = ExampleView()
        self.view.setFixedHeight(224)
        self._where = ElidedLabel(tone="muted")
        self.previous = quiet(tr("‹ Previous"), lambda: self._go(self._row - 1))
        self.next = quiet(tr("Next ›"), lambda: self._go(self._row + 1))
        legend = caption(tr("tinted: supervised (learned)"), "accent")
        legend.setToolTip(
            tr("The loss counts these tokens. The model reads the others but does not learn to write them.")
        )
        for widget in (legend, caption(tr("plain: read only"))):
            widget.setWordWrap(False)
            self.corner.addWidget(widget)
        self.tokens = QCheckBox(tr("Show tokens"))
        self.tokens.setToolTip(tr("Each token gets a tint that differs from its neighbors'."))
        self.tokens.toggled.connect(lambda _: self._go(self._row))
        self.corner.addWidget(self.tokens)
        self.body.addWidget(self.view)
        self.body.addWidget(row(self._where, self.previous, self.next))

    def show_first(self, facts: DatasetFacts) -> None:
        """Show the row that came with an inspection, unless it is already shown."""
        if facts is self._facts:
            return
        self._facts = facts
        self._rows = facts.train_rows
        self._row = 1
        if self.tokens.isChecked():
            self._go(1)
            return
        self.view.show_pieces(facts.example)
        self._show_where(tr("One of {rows}").format(rows=plural(self._rows, "training row")))

    def _go(self, number: int) -> None:
        self._client.cancel(self._asked)
        self._asked = name = self._client.send(
            PreviewRequest,
            recipe=self._bench.recipe_toml,
            row=number,
            tokens=self.tokens.isChecked(),
            owner=self,
            on_result=lambda result: self._found(name, result),
            on_failure=lambda failure: self._failed(name, failure),
        )

    def _found(self, name: str, result: Result) -> None:
        if name == self._asked and result.preview is not None:
            self._show(result.preview)

    def _failed(self, name: str, failure: Failure) -> None:
        if name == self._asked:
            self._show_where(failure.what)

    def _show(self, preview: Preview) -> None:
        self._row, self._rows = preview.row, preview.rows
        self.view.show_pieces(preview.pieces, tokens=self.tokens.isChecked())
        tokens = plural(preview.tokens, "token")
        if self.tokens.isChecked() and preview.pieces:  # each piece is a token then
            learned = sum(is_learned for _, is_learned in preview.pieces) / len(preview.pieces)
            tokens = tr("{tokens}, {share} learned").format(tokens=tokens, share=percent(learned))
        source = f"  ·  {preview.source}" if preview.source else ""
        self._show_where(
            tr("Row {row:,} of {rows:,}  ·  {tokens}{source}").format(
                row=preview.row, rows=preview.rows, tokens=tokens, source=source
            )
        )

    def _show_where(self, text: str) -> None:
        self._where.setText(text)
        self.previous.setEnabled(self._row > 1)
        self.next.setEnabled(self._row < self._rows)
