"""The base class of the pages: a headline, a column of content, banners, and one primary action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.theme import SCROLL_BAR_PX, UNIT, Theme
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.banner import Banner, BannerAction, BannerKind
from burnish_app.widgets.basic.buttons import Slot, primary, secondary
from burnish_app.widgets.basic.text import body, caption, title
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.wording.status import StepStatus
from burnish_engine.contract.serve.protocol import Failure, RunSummary

COLUMN_PX = 1400
"""Maximum width of the content column, the same on all pages, so that the headline stays in its place."""
_ALL = 1000  # stretch of the column against that of the margins beside it


class Page(QWidget):
    """A page of the window, one step of the work.

    Args:
        client: connection to the engine.
        bench: workbench with what the person works on.

    Attributes:
        key: key of the page in `window.PAGES`.
        title: name of the page in the sidebar.
        question: question that the page answers, its headline.
        fills: whether the content takes all of the height instead of as much as it needs.
        wants_runs: whether the window polls runs more often while the page is shown.
        column: layout for the content, inside a scroll area of at most `COLUMN_PX`.
        status_changed: signal with the new status for the sidebar.
        go_to: signal with the key of another page that the window shall show.
        refresh_runs: signal without arguments that asks the window to poll all runs now; `runs_changed` follows.
        primary: button of the primary action; None: the page has none.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    question: ClassVar[str] = ""

    fills: ClassVar[bool] = False
    wants_runs: ClassVar[bool] = False

    status_changed = Signal(str)
    go_to = Signal(str)
    refresh_runs = Signal()

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self.client = client
        self.bench = bench
        self._status: StepStatus = "empty"
        self._banner: Banner | None = None
        self.primary: QPushButton | None = None
        self._foot_note = caption("")
        self._foot_others, self._foot_actions = FlowLayout(to_right=True), QHBoxLayout()
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
    def status(self) -> StepStatus:
        """The status of the step, which the sidebar shows."""
        return self._status

    def set_status(self, status: StepStatus) -> None:
        """Change the status of the step."""
        if status != self._status:
            self._status = status
            self.status_changed.emit(status)

    def shown(self) -> None:
        """Handle that the page is now shown. Pages override it to refresh their content."""

    def hidden(self) -> None:
        """Handle that the page is no longer shown. Pages override it to stop timers."""

    def closing(self) -> None:
        """Handle that the window closes. Pages with threads override it."""

    def take_drop(self, paths: list[str]) -> None:
        """Take files or a folder that were dropped on the window and belong to this page. Data and Model override it.

        Args:
            paths: absolute paths.
        """

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Handle a new list of all runs. Pages that show runs override it.

        Args:
            runs: summaries of all runs, newest first.
        """

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """Take the window's preferences and theme, once. Pages that use them override it."""

    def set_subtitle(self, text: str) -> None:
        """Set the line under the headline; empty: none."""
        self._subtitle.setText(text)
        self._subtitle.setVisible(bool(text))

    def banner(
        self,
        kind: BannerKind,
        what: str,
        remedy: str = "",
        actions: Sequence[BannerAction] = (),
        *,
        close_text: str = "Dismiss",
    ) -> Banner:
        """Show a banner in place of the one shown before. The parameters are those of `Banner`."""
        self.clear_banner()
        banner = Banner(kind, what, remedy, actions, close_text=close_text)
        banner.closed.connect(self._forget_banner)
        self._banner = banner
        self._notices.addWidget(banner)
        return banner

    def failed(self, failure: Failure) -> None:
        """Show that a request failed. The method fits `on_failure` of `EngineClient.send`."""
        self.banner("error", failure.what, failure.remedy)

    def clear_banner(self) -> None:
        """Close the banner, if there is one."""
        if self._banner is not None:
            self._banner.close_banner()

    @property
    def shown_banner(self) -> Banner | None:
        """The banner that is shown; None: there is none."""
        return self._banner

    def set_primary(self, text: str, slot: Slot) -> QPushButton:
        """Set the page's primary action, which Ctrl+Return triggers; it replaces the one before."""
        if self.primary is not None:
            self.primary.deleteLater()
        self.primary = primary(text, slot)
        self._foot_actions.addWidget(self.primary)
        self._foot.show()
        return self.primary

    def add_secondary(self, text: str, slot: Slot) -> QPushButton:
        """Add a secondary action to the foot, left of the primary one."""
        button = secondary(text, slot)
        self._foot_others.addWidget(button)
        self._foot.show()
        return button

    def set_foot_note(self, text: str) -> None:
        """Set the sentence at the left of the foot; empty: none."""
        self._foot_note.setText(text)
        self._foot_note.setContentsMargins(0, 0, 2 * UNIT if text else 0, 0)
        self._foot_note.setMinimumWidth(0 if text else 1)  # without a note, all room for buttons
        self._foot.show()

    def fit_foot(self) -> None:
        """Hide the foot if it has neither a note nor a visible button. For pages whose actions come and go."""
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
