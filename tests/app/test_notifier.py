"""Notifications: only while the window is not the active one, only if wanted, and harmless without a tray."""

import time

import pytest
from app.facts.run_summaries import summary
from PySide6.QtWidgets import QSystemTrayIcon, QWidget

from burnish_app.notifier import Notifier
from burnish_app.state.preferences import Preferences


class Elsewhere(QWidget):
    """A window that the person does not look at."""

    looked_at = False

    def isActiveWindow(self):  # noqa: N802 Qt's name
        return self.looked_at


@pytest.fixture
def notifier(qtbot, burnish_home, monkeypatch):
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(lambda: False))
    window = Elsewhere()
    qtbot.addWidget(window)
    made = Notifier(window, Preferences())
    made.seen = []
    made.told.connect(lambda news: made.seen.append(news.kind))
    return made


def end(notifier):
    notifier.runs_changed([summary("running")])
    notifier.runs_changed([summary("finished")])


def test_an_end_is_told_without_a_tray(notifier):
    end(notifier)
    notifier.runs_changed([summary("finished")])
    assert notifier.seen == ["done"]


def test_nobody_is_told_what_they_see(notifier):
    notifier.parent().looked_at = True
    end(notifier)
    assert notifier.seen == []


def test_it_can_be_switched_off(notifier):
    Preferences().notifies = False
    end(notifier)
    assert notifier.seen == []


def test_what_there_is_at_the_start_is_no_news(notifier):
    notifier.runs_changed([summary("finished"), summary("failed", folder="/x")])
    assert notifier.seen == []


def test_a_run_that_ends_before_it_was_ever_listed_is_told_once(notifier):
    quick = summary("failed", created=time.time() + 1)
    notifier.runs_changed([])
    notifier.runs_changed([quick])
    notifier.runs_changed([quick])
    assert notifier.seen == ["failed"]


def test_the_tray_shows_it_and_a_press_leads_there(qtbot, notifier, monkeypatch):
    shown = []
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(lambda: True))
    monkeypatch.setattr(QSystemTrayIcon, "supportsMessages", staticmethod(lambda: True))
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _tray, title, *_rest: shown.append(title))
    end(notifier)
    assert "support-desk" in shown[0]
    with qtbot.waitSignal(notifier.chosen) as waited:
        notifier._tray.messageClicked.emit()
    assert waited.args[0].page == "train"
    assert notifier.parent().isVisible()
    notifier.close()
    assert not notifier._tray.isVisible()
