"""Labels that shorten what they show."""

from burnish_app.widgets.basic.text import PathLabel


def test_a_path_loses_whole_folders_from_its_beginning(qtbot):
    label = PathLabel("/home/ada/data/old/support.jsonl")
    qtbot.addWidget(label)
    widths = range(400, 20, -4)
    shown = list(dict.fromkeys(label.shown_text(width) for width in widths))
    whole = [text for text in shown if text.startswith("…/")]
    assert shown[0] == "/home/ada/data/old/support.jsonl"
    assert whole[-1] == "…/support.jsonl"
    assert "…/data/old/support.jsonl" in whole
    assert all(text.removeprefix("…") in label.text() for text in whole)
    assert all(label.fontMetrics().horizontalAdvance(label.shown_text(width)) <= width for width in widths)
    assert label.toolTip() == label.text()


def test_a_windows_path_keeps_its_separators(qtbot):
    label = PathLabel("C:\\Users\\Ada\\data\\support.jsonl")
    qtbot.addWidget(label)
    room = label.fontMetrics().horizontalAdvance("…\\data\\support.jsonl")
    assert label.shown_text(room) == "…\\data\\support.jsonl"
