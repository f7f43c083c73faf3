"""The card with the plan of several runs: it has the plan made once the choice rests, and starts what was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, headline
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.duel_text import in_window
from burnish_engine.contract.serve.messages import Failure, Result

_PLAN_AFTER_MS = 500


class PlanContent(NamedTuple):
    """Content of the card that shows a plan.

    Attributes:
        verdict: what the runs take, in a line.
        above: lines below the verdict.
        problem: why the runs, or some of them, cannot be made; empty: all can.
        below: lines below the problem.
    """

    verdict: str
    above: Sequence[QWidget]
    problem: str
    below: Sequence[QWidget]


class PlanCard(Card):
    """Shows what the chosen runs would compare and take.

    Args:
        client: connection to the engine.
        heading_text: heading of the card.
        busy_text: text while a plan is being made.
        requests: requests that plan the runs, and that start them.
        choice: function that returns the fields that both requests share, or a sentence that says what is missing.
        plan_of: function that returns the plan in the answer to the first request; None: there is none.
        content: function that returns how a plan is shown.
        plan_fields: function that returns more fields of the first request.

    Attributes:
        changed: signal without arguments, emitted when there is a plan, none any more, or runs are being started.
        anyway: signal without arguments, emitted when an unfair comparison shall be planned all the same.
        started: signal with the `Result` of the second request.
        failed: signal with its `Failure`.
        plan: plan for what is chosen now; None: there is none yet.
    """

    changed = Signal()
    anyway = Signal()
    started = Signal(object)
    failed = Signal(object)

    def __init__(
        self,
        client: EngineClient,
        *,
        heading_text: str,
        busy_text: str,
        requests: tuple[type[Any], type[Any]],
        choice: Callable[[], dict[str, Any] | str],
        plan_of: Callable[[Result], Any],
        content: Callable[[Any], PlanContent],
        plan_fields: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        super().__init__(heading_text, icon_name="clock")
        self._requests, self._choice, self._plan_fields = requests, choice, plan_fields
        self._plan_of, self._content = plan_of, content
        self.plan: Any = None
        self.busy = BusyLine(busy_text)
        self._timer = QTimer(self, singleShot=True, interval=_PLAN_AFTER_MS)
        self._timer.timeout.connect(self.ask)
        self._planning = Question(
            client,
            self,
            self._planned,
            self.show_failure,
            progressed=self.busy.set_progress,
            changed=self.changed.emit,
        )
        self._starting = Question(client, self, self.started.emit, self.failed.emit, changed=self.changed.emit)
        self.verdict, self.problem = headline(""), body("", "error")
        self.unfair = secondary(tr("Compare anyway"), self.anyway.emit)
        self._above, self._below = QVBoxLayout(), QVBoxLayout()
        fill(
            self.body,
            self.busy,
            self.verdict,
            self._above,
            self.problem,
            (self.unfair, 0, Qt.AlignmentFlag.AlignLeft),
            self._below,
        )
        for lines in (self._above, self._below):
            lines.setSpacing(UNIT)
        self.body.addStretch(1)
        self.show_wanting("")

    @property
    def is_starting(self) -> bool:
        """Whether the runs are being started."""
        return self._starting.is_waiting

    @property
    def can_start(self) -> bool:
        """Whether the plan on the card is of what is chosen now, and its runs are not being started."""
        return self.plan is not None and self._choice() == self.planned_for and not self.is_starting

    @property
    def planned_for(self) -> object:
        """The choice that the newest plan was asked for; None: none was."""
        return self._planning.about

    def review(self) -> None:
        """Keep a plan of what is chosen now; otherwise drop it, and have one made once the choice rests."""
        choice = self._choice()
        if (self.plan is not None or self._planning.is_waiting) and choice == self.planned_for:
            return
        self.plan = None
        self._planning.drop()
        if isinstance(choice, str):
            self._timer.stop()
            self.show_wanting(choice)
        else:
            self.show_wanting("")
            self._timer.start()
        self.changed.emit()

    def ask(self) -> None:
        """Have a plan made now, if the person looks at the card."""
        choice = self._choice()
        if isinstance(choice, dict) and self.isVisible():
            self._timer.stop()
            self.show_wanting("")
            self._planning.ask(self._requests[0], about=choice, **choice, **self._plan_fields())

    def start(self, **fields: Any) -> None:
        """Start what was planned, if that is what is chosen now.

        Args:
            **fields: fields of the second request alone.
        """
        choice = self._choice()
        if self.can_start and isinstance(choice, dict):
            self._starting.ask(self._requests[1], about=choice, **choice, **fields)

    def show_wanting(self, text: str) -> None:
        """Show what is missing for a plan; empty: one is being made."""
        self._show(PlanContent(text, (), "", ()))
        self.busy.setVisible(not text)

    def show_failure(self, failure: Failure) -> None:
        """Show why there can be no plan; a comparison that is only unfair can be made anyway."""
        is_unfair = "--anyway" in failure.remedy
        verdict = tr("These two make no fair duel.") if is_unfair else tr("No plan.")
        self._show(PlanContent(verdict, (), in_window(f"{failure.what} {failure.remedy}").strip(), ()))
        self.unfair.setVisible(is_unfair)

    def _planned(self, result: Result) -> None:
        self.plan = self._plan_of(result)
        if self.plan is not None:
            self._show(self._content(self.plan))

    def _show(self, content: PlanContent) -> None:
        self.busy.hide()
        self.unfair.hide()
        for label, text in ((self.verdict, content.verdict), (self.problem, content.problem)):
            label.setText(text)
            label.setVisible(bool(text))
        for lines, widgets in ((self._above, content.above), (self._below, content.below)):
            clear(lines)
            for widget in widgets:
                lines.addWidget(widget)
