"""An exception that nobody expected ends in a report, which is shown once, whatever thread it came from."""

import sys
import threading

import pytest
from PySide6.QtCore import QTimer

from burnish_app.widgets.basic.bug_notice import BugNotice


@pytest.fixture
def notice(qapp, monkeypatch, burnish_home):
    """A notice that takes this process's exceptions."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    one = BugNotice(qapp)
    one.install()
    yield one
    if one.box is not None:
        one.box.done(0)
    one.deleteLater()


def _fail():
    raise ValueError("/home/jo/acme.jsonl is odd")


def _taken():
    try:
        _fail()
    except ValueError:
        sys.excepthook(*sys.exc_info())


def _reports(home):
    return sorted((home / "reports").glob("*.txt"))


def test_a_bug_is_reported_once_and_shown(qtbot, notice, burnish_home, capsys):
    _taken()
    _taken()
    qtbot.waitUntil(lambda: notice.box is not None)
    (report,) = _reports(burnish_home)
    assert "ValueError: <path>.jsonl is odd" in report.read_text(encoding="utf-8")
    assert str(report) in notice.box.informativeText()
    assert notice.box.detailedText() == report.read_text(encoding="utf-8")
    assert "Traceback" in capsys.readouterr().err
    notice.box.done(0)
    assert notice.box is None


def test_bugs_of_threads_are_shown_in_the_windows_own(qtbot, notice, burnish_home):
    thread = threading.Thread(target=_fail)
    thread.start()
    thread.join()
    qtbot.waitUntil(lambda: notice.box is not None)
    assert len(_reports(burnish_home)) == 1


def test_stopping_is_no_bug(qtbot, notice, burnish_home):
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    done = []
    QTimer.singleShot(0, lambda: done.append(True))
    qtbot.waitUntil(lambda: bool(done))
    assert notice.box is None
    assert not _reports(burnish_home)


def test_a_report_that_cannot_be_written_is_shown_all_the_same(qtbot, notice, burnish_home):
    burnish_home.mkdir(exist_ok=True)
    (burnish_home / "reports").write_text("a file in the way")
    _taken()
    qtbot.waitUntil(lambda: notice.box is not None)
    assert "ValueError" in notice.box.detailedText()
