"""Tells a person who looks elsewhere that something ended or needs them, by the system's notifications."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from burnish_app.news import News, NewsKind, duel_news, run_news
from burnish_app.state.preferences import Preferences
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.serve.replies import RunSummary

_SHOWN_MS = 10_000
_LATE_S = 5.0  # age that a list of runs may have when it arrives from a busy machine
_ICONS: dict[NewsKind, QSystemTrayIcon.MessageIcon] = {
    "done": QSystemTrayIcon.MessageIcon.Information,
    "failed": QSystemTrayIcon.MessageIcon.Warning,
    "attention": QSystemTrayIcon.MessageIcon.Warning,
}


class Notifier(QObject):
    """Shows news while its window is not the active one, through the system's tray; without one, only the taskbar.

    Args:
        window: window whose icon it has and that it calls attention to.
        preferences: settings of the window; they may switch it off.

    Attributes:
        told: signal with each `News` that was shown.
        chosen: signal with the `News` that was pressed.
    """

    told = Signal(object)
    chosen = Signal(object)

    def __init__(self, window: QWidget, preferences: Preferences) -> None:
        super().__init__(window)
        self._window, self._preferences = window, preferences
        self._runs: Sequence[RunSummary] = ()
        self._looked = math.inf  # what is there at the first look is no news
        self._duels: Sequence[DuelFacts] = ()
        self._tray: QSystemTrayIcon | None = None
        self._newest: News | None = None

    def runs_changed(self, runs: Sequence[RunSummary]) -> None:
        """Show what happened since the last list of runs."""
        news, self._runs = run_news(self._runs, runs, self._looked), runs
        self._looked = time.time() - _LATE_S
        self._notify(news)

    def duels_changed(self, duels: Sequence[DuelFacts]) -> None:
        """Show what happened since the last list of duels."""
        news, self._duels = duel_news(self._duels, duels), duels
        self._notify(news)

    def close(self) -> None:
        """Take the icon out of the system's tray."""
        if self._tray is not None:
            self._tray.hide()

    def _notify(self, news: Sequence[News]) -> None:
        if not news or not self._preferences.notifies or self._window.isActiveWindow():
            return
        QApplication.alert(self._window)
        for one in news:
            self._newest = one
            if QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages():
                self._shown_tray().showMessage(one.title, one.text, _ICONS[one.kind], _SHOWN_MS)
            self.told.emit(one)

    def _shown_tray(self) -> QSystemTrayIcon:
        """Return the icon in the system's tray, which a message needs; it comes with the first one."""
        if self._tray is None:
            self._tray = QSystemTrayIcon(self._window.windowIcon(), self)
            self._tray.setToolTip(self._window.windowTitle())
            self._tray.messageClicked.connect(self._pressed)
            self._tray.activated.connect(lambda _how: self._pressed())
        self._tray.show()
        return self._tray

    def _pressed(self) -> None:
        self._window.show()
        self._window.raise_()
        self._window.activateWindow()
        if self._newest is not None:
            self.chosen.emit(self._newest)
