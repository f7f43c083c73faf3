"""The view of the chosen row as the model reads it, rendered by the engine, with its learned tokens colored."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QCheckBox, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption, heading, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.data.example_view import ExampleView
from burnish_app.wording.data_text import preview_text
from burnish_engine.contract.facts.data_report import RowLine
from burnish_engine.contract.serve.data_requests import PreviewRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import Preview

_PATIENCE_MS = 60  # whoever holds an arrow key down does not read each row


class RowPreview(QWidget):
    """Shows a row as it would be trained on. It asks the engine, a moment after the last row was chosen."""

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self._bench = bench
        self._row: RowLine | None = None
        self._question = Question(client, self, self._found, self._failed)
        self.view = ExampleView()
        self.view.setPlaceholderText(tr("The chosen row appears here once its columns have their roles."))
        self.figures = caption("")
        self.problem = body("", "warning")
        self.tokens = QCheckBox(tr("Show tokens"))
        self.tokens.setToolTip(tr("Each token gets a tint that differs from its neighbors'."))
        self.tokens.toggled.connect(lambda shown: self.view.set_tokens(shown=shown))
        legend = caption(tr("tinted: supervised (learned)"), "accent")
        legend.setToolTip(
            tr("The loss counts these tokens. The model reads the others but does not learn to write them.")
        )
        title = heading(tr("As the model reads it"))
        title.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        foot = FlowLayout(2 * UNIT, 2)
        for label in (title, legend, self.figures):
            label.setWordWrap(False)
        for label in (legend, self.figures):
            foot.addWidget(label)
        fill(QVBoxLayout(self), row(title, self.tokens), self.problem, (self.view, 1), foot, spacing_px=UNIT)
        self._soon = QTimer(self, singleShot=True, interval=_PATIENCE_MS)
        self._soon.timeout.connect(self._ask)
        self._say("")

    @property
    def row(self) -> RowLine | None:
        """The row that is shown; None: none is chosen."""
        return self._row

    def show_row(self, row: RowLine | None) -> None:
        """Render a row; None: none is chosen."""
        self._row = row
        self.refresh()

    def refresh(self) -> None:
        """Render the row again, because the recipe changed."""
        self._question.drop()
        if self._row is None:
            self._soon.stop()
            self.view.show_pieces(())
            self._say("")
        elif self._row.problem:
            self._soon.stop()
            self.view.show_pieces(())
            self._say(self._row.problem)
        else:
            self._soon.start()

    def _ask(self) -> None:
        if self._row is not None:
            file, index = self._row.file, self._row.index
            self._question.ask(PreviewRequest, recipe=self._bench.recipe_toml, file=file, index=index)

    def _found(self, result: Result) -> None:
        if result.preview is not None:
            self._show(result.preview)

    def _failed(self, failure: Failure) -> None:
        self.view.show_pieces(())
        self._say(failure.what)

    def _show(self, preview: Preview) -> None:
        self.view.show_pieces(preview.pieces, tokens=self.tokens.isChecked())
        said = tr("Nothing is learned of this row: {problem}.").format(problem=preview.problem)
        self._say(said if preview.problem else "", preview_text(preview))

    def _say(self, problem: str, figures: str = "") -> None:
        set_tone(self.problem, "warning" if problem else "")
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        self.figures.setText(figures)
        self.figures.setVisible(bool(figures))
