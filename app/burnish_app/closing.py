"""Closing the window while something is running: the question, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QLabel, QMessageBox, QPushButton, QWidget

from burnish_app.activity_watch import ActivityWatch, stop_activity
from burnish_app.look.language import tr
from burnish_app.state.preferences import Preferences
from burnish_app.wording.activity import Activity

if TYPE_CHECKING:
    from burnish_app.engine.engine_client import EngineClient
    from burnish_engine.contract.serve.messages import Failure

_MOST_LINES = 5


class Closing:
    """Asks before the window closes while something is running, and closes it as the person decides.

    Args:
        window: window that is to be closed.
        client: connection to the engine.
        preferences: settings of the window.
        activity: what is running.
        failed: function called with the `Failure` of each request to stop something.

    Attributes:
        question: question that is open; None: none is.
        decided: whether the window closes without one.
    """

    def __init__(
        self,
        window: QWidget,
        client: EngineClient,
        preferences: Preferences,
        activity: ActivityWatch,
        failed: Callable[[Failure], object],
    ) -> None:
        self._window, self._client, self._preferences = window, client, preferences
        self._activity, self._failed = activity, failed
        self.question: ClosingQuestion | None = None
        self.decided = False

    def has_to_ask(self) -> bool:
        """Return whether the person has to be asked before the window closes."""
        app = QGuiApplication.instance()
        ends = isinstance(app, QGuiApplication) and app.isSavingSession()  # the person logs out
        asks = self._preferences.asks_on_close and not self.decided
        return asks and bool(self._activity.lasting) and not ends

    def ask(self) -> None:
        """Ask, or show the question that is open."""
        if self.question is not None:
            self.question.raise_()
            return
        lasting = self._activity.lasting
        self.question = ClosingQuestion(self._window, lasting, leave=self._leave, stop=self._stop_and_close)
        self.question.finished.connect(self._asked)
        self.question.open()

    def _asked(self) -> None:
        question, self.question = self.question, None
        if question is not None:
            question.deleteLater()

    def _leave(self, never_again: bool) -> None:
        """Close the window; what is running continues."""
        if never_again:
            self._preferences.asks_on_close = False
        self._close()

    def _stop_and_close(self) -> None:
        stop_all(self._client, self._activity.lasting, done=self._close, failed=self._failed, owner=self._window)

    def _close(self) -> None:
        self.decided = True
        QTimer.singleShot(0, self._window, self._window.close)


class ClosingQuestion(QMessageBox):
    """Asks whether what is running shall continue without the window.

    Args:
        parent: window that is to be closed.
        activities: runs, exports, duels and downloads that are running.
        leave: function called where they shall continue, with whether nothing shall be asked again.
        stop: function called where they shall be stopped first.

    Attributes:
        leaving: button that leaves everything running.
        stopping: button that stops and saves.
        never_again: box to tick for no further question.
    """

    def __init__(
        self,
        parent: QWidget,
        activities: Sequence[Activity],
        *,
        leave: Callable[[bool], object],
        stop: Callable[[], object],
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Close Burnish?"))
        self.setText(tr("Work continues. It does not need this window."))
        lines = [f"{one.name}: {one.what}, {one.progress}".rstrip(", ") for one in activities[:_MOST_LINES]]
        if len(activities) > _MOST_LINES:
            lines.append(tr("and {n} more").format(n=len(activities) - _MOST_LINES))
        lines += ["", tr("A stopped run, duel or download can continue later; a stopped export has to start again.")]
        self.setInformativeText("\n".join(lines))
        for label in self.findChildren(QLabel):
            label.setTextFormat(Qt.TextFormat.PlainText)  # a run's name is no markup
        self.leaving = self._button(
            tr("Leave it running"),
            QMessageBox.ButtonRole.AcceptRole,
            lambda: leave(self.never_again.isChecked()),
            "primary",
        )
        stop_text = tr("Stop and save") if any(one.page != "export" for one in activities) else tr("Stop")
        self.stopping = self._button(stop_text, QMessageBox.ButtonRole.DestructiveRole, stop, "secondary")
        cancel = self._button(tr("Cancel"), QMessageBox.ButtonRole.RejectRole, lambda: None, "secondary")
        self.setDefaultButton(self.leaving)
        self.setEscapeButton(cancel)
        self.never_again = QCheckBox(tr("Do not ask again: leave it running"))
        self.setCheckBox(self.never_again)

    def _button(self, text: str, role: QMessageBox.ButtonRole, act: Callable[[], object], kind: str) -> QPushButton:
        button = self.addButton(text, role)
        button.setProperty("look", kind)
        for polish in (button.style().unpolish, button.style().polish):  # the box has styled it already
            polish(button)
        button.clicked.connect(lambda _checked: act())
        return button


def stop_all(
    client: EngineClient,
    activities: Sequence[Activity],
    *,
    done: Callable[[], object],
    failed: Callable[[Failure], object],
    owner: QWidget,
) -> None:
    """Ask all that is running to stop.

    Args:
        client: connection to the engine.
        activities: runs, exports, duels and downloads that are running; at least one.
        done: function called once all were asked.
        failed: function called for each that could not be asked; `done` is not called then.
        owner: window whose end ends the waiting.
    """
    asked: list[object] = []

    def one_done(result: object) -> None:
        asked.append(result)
        if len(asked) == len(activities):
            done()

    for one in activities:
        stop_activity(client, one, done=one_done, failed=failed, owner=owner)
