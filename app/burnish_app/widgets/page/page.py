"""The base class of the pages: name and state, question, banners, a column of content, and one primary action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.look.motion import unfold
from burnish_app.look.theme import Theme
from burnish_app.look.tokens import GAP_PX, MARGIN_PX, SCROLL_BAR_PX, TITLE_PX, UNIT
from burnish_app.page_states.page_state import PageState
from burnish_app.state.preferences import Preferences
from burnish_app.state.step_status import StepStatus
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import ActionButton, Slot, quiet
from burnish_app.widgets.basic.card import CardGround
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Pill, PillTone
from burnish_app.widgets.basic.text import ElidedLabel, body
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.banner import Banner, BannerAction, BannerKind
from burnish_app.widgets.page.column import STRETCH, put_in_the_middle, set_line
from burnish_app.widgets.page.foot import Foot
from burnish_app.widgets.page.side_column import SideColumn
from burnish_app.widgets.page.tabs import PageTabs
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import RunSummary

_PASSING_MS = 12_000
_SUBTITLE_PX = 360  # width from which a long line may stand behind the question


class Page(QWidget):
    """A page of the window, one step of the work.

    Args:
        client: connection to the engine.
        bench: workbench with what the person works on.

    Attributes:
        key: key of the page in `page_list.PAGES`.
        title: name of the page in the sidebar.
        question: question that the page answers.
        has_side_column: whether cards are beside the column on wide pages.
        fills: whether the content takes all of the height instead of as much as it needs.
        wants_runs: whether the window polls runs more often while the page is shown.
        column: layout for the content, inside a scroll area.
        side: place for cards beside the column.
        status_changed: signal with the new status for the sidebar.
        go_to: signal with the key of another page that the window shall show.
        resized: signal with the height of the page, device-independent pixels, when its size changed.
        help_asked: signal without arguments that asks the window to open the guide at this page.
        refresh_runs: signal without arguments that asks the window to poll all runs now; `runs_changed` follows.
        activities_changed: signal with every `Activity` of the page that is not a run, an export or a duel.
        tabs: tabs in place of the name; None: the page has none.
        corner: layout at the right of the name, for small buttons.
        foot: note and actions at the foot of the page.
        parts: parts of the content that a state shows or hides, by name.
        showing: state that is shown.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    question: ClassVar[str] = ""

    has_side_column: ClassVar[bool] = False
    fills: ClassVar[bool] = False
    wants_runs: ClassVar[bool] = False

    status_changed = Signal(str)
    go_to = Signal(str)
    refresh_runs = Signal()
    resized = Signal(int)
    help_asked = Signal()
    activities_changed = Signal(list)

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self.client = client
        self.bench = bench
        self.parts: dict[str, QWidget] = {}
        self.showing = PageState()
        self._status: StepStatus = "empty"
        self._banner: Banner | None = None
        self._is_filling = self.fills
        self._passing = QTimer(self, singleShot=True, interval=_PASSING_MS)
        self._passing.timeout.connect(self.clear_banner)
        self.setAccessibleName(self.title)
        self.name_label = ElidedLabel(self.title, size_px=TITLE_PX, bold=True, expands=False)
        self.state_pill = Pill()
        self.tabs: PageTabs | None = None
        self._name_line, self.corner = FlowLayout(UNIT + 4, UNIT // 2), QHBoxLayout()
        self.subtitle = body("", "muted")
        self.subtitle.hide()
        self._notices = QVBoxLayout()
        self.column, self.side = QVBoxLayout(), SideColumn()
        self.column.setSpacing(GAP_PX)
        self._scroll = self._make_scroll()
        middle = fill(QHBoxLayout(), (self._scroll, 1), self.side, spacing_px=0)
        self._dock_place = QVBoxLayout()
        self.foot = Foot()
        fill(QVBoxLayout(self), (middle, 1), self._dock_place, self.foot, spacing_px=0)
        if self.has_side_column:
            self.side.place(self.width())

    @property
    def status(self) -> StepStatus:
        """The status of the step, which the sidebar shows."""
        return self._status

    def set_status(self, status: StepStatus) -> None:
        """Change the status of the step."""
        if status != self._status:
            self._status = status
            self.status_changed.emit(status)

    def add_parts(self, stretch: int = 0, /, **parts: QWidget) -> None:
        """Add parts to the content, one below the other, that are shown where a state names them."""
        for name, part in parts.items():
            self.parts[name] = part
            self.column.addWidget(part, stretch)

    def apply(self, state: PageState) -> None:
        """Show a state."""
        self.showing = state
        if state.status is not None:
            self.set_status(state.status)
        self.set_name(state.name)
        self.set_state(*state.pill)
        self.set_subtitle(state.subtitle)
        self.set_filling(fills=self.fills or state.fills)
        for name, part in self.parts.items():
            part.setVisible(name in state.parts)
        self.foot.apply(state)

    def shown(self) -> None:
        """Handle that the page is now shown. Pages override it to refresh their content."""

    def hidden(self) -> None:
        """Handle that the page is no longer shown. Pages override it to stop timers."""

    def leave(self) -> None:
        """Leave the page: a banner that is not about its work goes."""
        if self._passing.isActive():
            self._passing.stop()
            self.clear_banner()
        self.hidden()

    def closing(self) -> None:
        """Handle that the window closes; the page that was shown is hidden before. Pages with threads override it."""

    def take_drop(self, paths: list[str], *, instead: bool = False) -> None:
        """Take files or a folder that were dropped on the window and belong to this page. Data and Model override it.

        Args:
            paths: absolute paths.
            instead: whether they take the place of what is there, where a page has a choice.
        """

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Handle a new list of all runs. Pages that show runs override it.

        Args:
            runs: summaries of all runs, newest first.
        """

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """Take the window's preferences and theme, once. Pages that use them override it."""

    def set_name(self, name: str) -> None:
        """Set what the page is about, such as a run's name, in place of the page's own; empty: the page's own."""
        self.name_label.setText(name or self.title)
        self.name_label.setVisible(self.tabs is None or bool(name))

    def set_tabs(self, tabs: Sequence[tuple[str, str, str]]) -> None:
        """Put tabs in place of the name.

        Args:
            tabs: (key, name, shortcut) of each page that has one, this one among them.
        """
        self.tabs = PageTabs(tabs, self.key)
        self.tabs.chosen.connect(self.go_to)
        self._name_line.insertWidget(0, self.tabs)
        self.set_name("")

    def set_state(self, text: str, tone: PillTone = "plain") -> None:
        """Set the state of what the page is about, beside its name; empty: none."""
        self.state_pill.set(text, tone)

    def set_subtitle(self, text: str) -> None:
        """Set the line behind the question; empty: none."""
        set_line(self.subtitle, text, _SUBTITLE_PX)  # with less room it goes below the question

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Scroll by the keys that nothing with the focus wants."""
        bar = self._scroll.verticalScrollBar()
        steps = {
            Qt.Key.Key_PageDown: bar.pageStep(),
            Qt.Key.Key_PageUp: -bar.pageStep(),
            Qt.Key.Key_Down: 5 * UNIT,
            Qt.Key.Key_Up: -5 * UNIT,
            Qt.Key.Key_Home: -bar.maximum(),
            Qt.Key.Key_End: bar.maximum(),
        }
        step = steps.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
        else:
            bar.setValue(bar.value() + step)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put what stands beside the column where there is room for it, and say how high the page is."""
        super().resizeEvent(event)
        self.resized.emit(self.height())
        if self.has_side_column:
            self.side.place(self.width())

    def banner(
        self,
        kind: BannerKind,
        what: str,
        remedy: str = "",
        actions: Sequence[BannerAction] = (),
        *,
        close_text: str = tr("Dismiss"),
        passing: bool = False,
    ) -> Banner:
        """Show a banner in place of the one shown before.

        Args:
            kind: kind of message.
            what: sentence that says what happened.
            remedy: advice on what to do about it; may be empty.
            actions: (text, slot) of each button.
            close_text: text of the button that closes the banner.
            passing: whether the banner goes by itself, after a while or when the page is left, because it is not about
                the page's work.
        """
        self.clear_banner()
        banner = Banner(kind, what, remedy, actions, close_text=close_text)
        banner.closed.connect(self._forget_banner)
        self._banner = banner
        self._notices.addWidget(banner)
        unfold(banner, show=True)
        self._passing.stop()
        if passing:
            self._passing.start()
        return banner

    def command(self, request: type[Any], /, then: Callable[[Result], object] | None = None, **fields: Any) -> None:
        """Have the engine do something. A banner says why it did not.

        Args:
            request: request class of `contract.serve.protocol`.
            then: function that gets the result; None: the runs are polled.
            **fields: fields of the request, without its id.
        """
        done = then or (lambda _result: self.refresh_runs.emit())
        self.client.send(request, on_result=done, on_failure=self.failed, owner=self, **fields)

    def failed(self, failure: Failure) -> None:
        """Show that a request failed. The method fits `on_failure` of `EngineClient.send`."""
        self.banner("error", failure.what, failure.remedy)

    def draft_from(self, path: Path, source: str, change: Callable[[Recipe], Recipe] | None = None) -> None:
        """Make a copy of a saved recipe the draft and lead to the page Recipe, or say why the file cannot be read.

        Args:
            path: recipe file.
            source: name of the run that it is from.
            change: function that changes the copy; None: it stays as it is.
        """
        try:
            recipe = load_recipe(path)
        except BurnishError as error:
            self.banner("error", error.what, error.remedy)
            return
        self.bench.draft_copy(change(recipe) if change is not None else recipe, source)
        self.go_to.emit("recipe")

    def ask_folder(self, title: str, use: Callable[[str], object]) -> None:
        """Let the person choose a folder."""
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(use)
        dialog.open()

    def clear_banner(self) -> None:
        """Close the banner, if there is one."""
        if self._banner is not None:
            self._banner.close_banner()

    def _see(self, widget: QWidget) -> None:
        """Scroll to a widget of the page, once what was changed just now is laid out."""
        QTimer.singleShot(0, widget, lambda: self._scroll.ensureWidgetVisible(widget, 0, MARGIN_PX))

    def set_filling(self, *, fills: bool) -> None:
        """Let the content reach to the foot of the page: what can expand in it does so."""
        if fills == self._is_filling:
            return
        self._is_filling = fills
        place = self._whole.count() - 1
        self._whole.setStretchFactor(self.column, STRETCH if fills else 0)
        self._whole.setStretch(place, 0 if fills else STRETCH)

    @property
    def does(self) -> str:
        """Name of what a press of the primary button does now; empty: nothing."""
        button = self.showing.primary
        return button.does if button is not None and button.is_enabled else ""

    @property
    def buttons(self) -> dict[str, ActionButton]:
        """The named buttons of the foot."""
        return self.foot.secondary

    @property
    def shown_banner(self) -> Banner | None:
        """The banner that is shown; None: there is none."""
        return self._banner

    def set_primary(self, text: str, slot: Slot, icon_name: str = "") -> ActionButton:
        """Set the page's primary action, which Ctrl+Return triggers; it replaces the one before."""
        return self.foot.set_primary(text, slot, icon_name)

    @property
    def primary(self) -> ActionButton | None:
        """The button of the primary action; None: the page has none."""
        return self.foot.primary

    def dock(self, widget: QWidget) -> None:
        """Put a widget between what scrolls and the foot, so that it is always in view."""
        inner, holder = QWidget(), QWidget()
        fill(QVBoxLayout(inner), widget, margins_px=(MARGIN_PX, UNIT, MARGIN_PX, 2 * UNIT))
        put_in_the_middle(holder, inner, SCROLL_BAR_PX)
        self._dock_place.addWidget(holder)

    def add_secondary(self, text: str, slot: Slot, icon_name: str = "", name: str = "") -> ActionButton:
        """Add a secondary action to the foot, left of the primary one; with a name, a state shows or hides it."""
        return self.foot.add_secondary(text, slot, icon_name, name)

    def set_foot_note(self, text: str) -> None:
        """Set the sentence at the left of the foot; empty: none."""
        self.foot.set_note(text)

    def fit_foot(self) -> None:
        """Hide the foot if it has neither a note nor a visible button. For pages whose actions come and go."""
        self.foot.fit()

    def _forget_banner(self) -> None:
        self._banner = None

    def _make_head(self) -> QVBoxLayout:
        named = fill(self._name_line, self.name_label, self.state_pill)
        guide = quiet("?", self.help_asked.emit)
        guide.setToolTip(tr("Guide to this page (F1)"))
        guide.setAccessibleName(tr("Guide to this page"))
        guide.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # F1 is the way of the keyboard
        corner = fill(self.corner, (guide, 0, Qt.AlignmentFlag.AlignTop), spacing_px=UNIT // 2)
        name = fill(QHBoxLayout(), (named, 1), corner, spacing_px=UNIT + 4)
        question = body(self.question)
        question.setWordWrap(False)
        self.subtitle.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        asked = fill(FlowLayout(UNIT, 2), question, self.subtitle)
        return fill(QVBoxLayout(), name, asked, spacing_px=4)

    def _make_scroll(self) -> QScrollArea:
        inner = CardGround()
        content = self._whole = fill(
            QVBoxLayout(inner),
            self._make_head(),
            self._notices,
            self.side.on_top,
            (self.column, STRETCH if self.fills else 0),
            spacing_px=2 * UNIT,
            margins_px=(MARGIN_PX, 3 * UNIT, MARGIN_PX, 3 * UNIT),
        )
        content.addStretch(0 if self.fills else STRETCH)
        holder = QWidget()
        put_in_the_middle(holder, inner)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        scroll.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # content keeps its place
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the page scrolls it by its keys
        bar = scroll.verticalScrollBar()
        bar.setEnabled(False)  # the style sheet draws no handle then
        bar.rangeChanged.connect(lambda _low, high: bar.setEnabled(high > 0))
        scroll.setWidget(holder)
        return scroll
