"""What every page shares: the question it answers, a column of content, messages in place, and one next action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from burnish_app.engine_client import EngineClient
from burnish_app.preferences import Preferences
from burnish_app.theme import SCROLL_BAR_PX, UNIT, Theme
from burnish_app.widgets.banner import Action, Banner, Kind
from burnish_app.widgets.buttons import Slot, primary, secondary
from burnish_app.widgets.status_dot import Status
from burnish_app.widgets.text import body, caption, title
from burnish_app.widgets.wrapping import Flow
from burnish_app.workbench import Workbench
from burnish_engine.contract.protocol import Failure, RunSummary

COLUMN_PX = 1400
"""Widest content column, the same on all pages: the headline stays where it is from page to page."""
_ALL = 1000  # stretch of the column against that of the margins beside it


class Page(QWidget):
    """A page of the window.

    Args:
        client: Asks the engine.
        bench: What the person works on.

    Attributes:
        key: Name of the page in `window.PAGES`.
        title: Its name in the sidebar.
        question: What it answers at a glance; its headline.
        fills: Whether the content takes all the height there is, rather than as much as it needs.
        wants_runs: Whether, while the page is shown, it needs to know at once how runs stand.
        column: Layout for the content, inside a scroll area of at most `COLUMN_PX`.
        status_changed: Emits the new status for the sidebar.
        go_to: Emits the key of another page that the window shall show.
        ask_runs: Asks the window to find out now how all runs stand; `runs_changed` follows.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    question: ClassVar[str] = ""

    fills: ClassVar[bool] = False
    wants_runs: ClassVar[bool] = False

    status_changed = Signal(str)
    go_to = Signal(str)
    ask_runs = Signal()

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self.client = client
        self.bench = bench
        self._status: Status = "empty"
        self._banner: Banner | None = None
        self.primary: QPushButton | None = None
        self._foot_note = caption("")
        self._foot_others, self._foot_actions = Flow(to_right=True), QHBoxLayout()
        self.setAccessibleName(self.title)
        self._headline = title(self.question)
        self._subtitle = body("", "muted")
        self._subtitle.hide()
        self._notices = QVBoxLayout()
        self.column = QVBoxLayout()
        self.column.setSpacing(2 * UNIT)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self._make_scroll(), 1)
        self._foot = self._make_foot()
        outer.addWidget(self._foot)

    @property
    def status(self) -> Status:
        """How the step stands; the sidebar shows it."""
        return self._status

    def set_status(self, status: Status) -> None:
        """Change how the step stands."""
        if status != self._status:
            self._status = status
            self.status_changed.emit(status)

    def shown(self) -> None:
        """The person came to this page. Overridden by pages that look things up then."""

    def hidden(self) -> None:
        """The person left this page. Overridden by pages that watch something while shown."""

    def closing(self) -> None:
        """The window closes. Overridden by pages that hold threads or files."""

    def take_drop(self, paths: list[str]) -> None:
        """Files or a folder were dropped on the window and belong here. Overridden by Data and Model.

        Args:
            paths: Absolute.
        """

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """The window found out how all runs stand. Overridden by pages that show runs.

        Args:
            runs: Newest first.
        """

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """What the window remembers of itself, handed over once. Overridden by pages that use it."""

    def set_subtitle(self, text: str) -> None:
        """One line under the headline; empty: none."""
        self._subtitle.setText(text)
        self._subtitle.setVisible(bool(text))

    def banner(
        self, kind: Kind, what: str, remedy: str = "", actions: Sequence[Action] = (), *, close_text: str = "Dismiss"
    ) -> Banner:
        """Say something in place; it replaces what was said before."""
        self.clear_banner()
        banner = Banner(kind, what, remedy, actions, close_text=close_text)
        banner.closed.connect(self._forget_banner)
        self._banner = banner
        self._notices.addWidget(banner)
        return banner

    def failed(self, failure: Failure) -> None:
        """Say that a request failed. Fits `on_failure` of `EngineClient.send`."""
        self.banner("error", failure.what, failure.remedy)

    def clear_banner(self) -> None:
        """Take back what was said."""
        if self._banner is not None:
            self._banner.close_banner()

    @property
    def shown_banner(self) -> Banner | None:
        """What is being said."""
        return self._banner

    def set_primary(self, text: str, slot: Slot) -> QPushButton:
        """The page's one next action, in the accent; Ctrl+Return presses it. Replaces the one before."""
        if self.primary is not None:
            self.primary.deleteLater()
        self.primary = primary(text, slot)
        self._foot_actions.addWidget(self.primary)
        self._foot.show()
        return self.primary

    def add_secondary(self, text: str, slot: Slot) -> QPushButton:
        """A further action in the foot, left of the primary one."""
        button = secondary(text, slot)
        self._foot_others.addWidget(button)
        self._foot.show()
        return button

    def set_foot_note(self, text: str) -> None:
        """A quiet sentence at the left of the foot."""
        self._foot_note.setText(text)
        self._foot_note.setContentsMargins(0, 0, 2 * UNIT if text else 0, 0)
        self._foot_note.setMinimumWidth(0 if text else 1)  # without a note, all room for buttons
        self._foot.show()

    def fit_foot(self) -> None:
        """Hide the foot while it holds nothing to see. For pages whose actions come and go."""
        buttons = self._foot.findChildren(QPushButton)
        self._foot.setVisible(bool(self._foot_note.text()) or any(not button.isHidden() for button in buttons))

    def _forget_banner(self) -> None:
        self._banner = None

    def _make_scroll(self) -> QScrollArea:
        inner = QWidget()
        inner.setMaximumWidth(COLUMN_PX)
        content = QVBoxLayout(inner)
        content.setContentsMargins(4 * UNIT, 4 * UNIT, 4 * UNIT, 4 * UNIT)
        content.setSpacing(2 * UNIT)
        head = QVBoxLayout()
        head.setSpacing(4)
        head.addWidget(self._headline)
        head.addWidget(self._subtitle)
        content.addLayout(head)
        content.addLayout(self._notices)
        content.addLayout(self.column, _ALL if self.fills else 0)
        content.addStretch(0 if self.fills else _ALL)
        holder = QWidget()
        line = QHBoxLayout(holder)
        line.setContentsMargins(0, 0, 0, 0)
        line.addStretch()
        line.addWidget(inner, _ALL)
        line.addStretch()
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        scroll.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # content keeps its place
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        bar = scroll.verticalScrollBar()
        bar.setEnabled(False)  # the style sheet draws no handle then
        bar.rangeChanged.connect(lambda _low, high: bar.setEnabled(high > 0))
        scroll.setWidget(holder)
        return scroll

    def _make_foot(self) -> QFrame:
        foot = QFrame()
        foot.setObjectName("footbar")
        inner = QWidget()
        inner.setMaximumWidth(COLUMN_PX)
        line = QHBoxLayout(inner)
        line.setContentsMargins(4 * UNIT, UNIT + 4, 4 * UNIT, UNIT + 4)
        inner.setMinimumHeight(8 * UNIT)  # with and without the primary button, which is taller
        line.setSpacing(0)
        line.addWidget(self._foot_note, 1)
        buttons = QHBoxLayout()
        buttons.setSpacing(UNIT)
        buttons.addLayout(self._foot_others)
        buttons.addLayout(self._foot_actions)
        line.addLayout(buttons)
        outer = QHBoxLayout(foot)
        outer.setContentsMargins(0, 0, SCROLL_BAR_PX, 0)
        outer.addStretch()
        outer.addWidget(inner, _ALL)
        outer.addStretch()
        foot.hide()
        return foot
