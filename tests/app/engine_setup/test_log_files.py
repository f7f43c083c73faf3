import pytest
from PySide6.QtGui import QGuiApplication

from burnish_app.engine_setup.log_files import LogFile, log_files, log_text
from burnish_app.widgets.engine.log_card import LogCard


def test_the_end_of_a_log_is_shown(tmp_path):
    path = tmp_path / "serve.log"
    path.write_text("".join(f"line {number}\n" for number in range(2000)), encoding="utf-8")
    shown = log_text(LogFile("engine", "Engine", path))
    assert shown.splitlines()[-1] == "line 1999"
    assert len(shown.splitlines()) == 500


def test_a_log_that_is_not_there_is_said_to_be_empty(tmp_path):
    assert "Nothing" in log_text(LogFile("engine", "Engine", tmp_path / "none.log"))


@pytest.mark.gui
def test_a_copy_leaves_secrets_out(qtbot, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    (tmp_path / "engine.log").write_text("token hf_abcdefghijklmnopqrstuvwxyz0123456789\n", encoding="utf-8")
    card = LogCard(tmp_path / "engine.log")
    qtbot.addWidget(card)
    card.show()
    assert "hf_abc" in card.text.toPlainText()
    card.copy()
    copied = QGuiApplication.clipboard().text()
    assert copied.startswith("token")
    assert "hf_abcdef" not in copied
    assert {log.key for log in log_files(tmp_path)} == {"engine", "errors", "window", "set_up"}
