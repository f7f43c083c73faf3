"""Drag and drop: what is taken, by which page, and what is said of the rest."""

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget

from burnish_app.widgets.basic.drop import DropOverlay, classify_drop

pytestmark = pytest.mark.gui

MOVE = Qt.DropAction.MoveAction
COPY = Qt.DropAction.CopyAction


@pytest.fixture
def files(tmp_path):
    """A dataset, a model's folder, another folder and a picture."""
    (tmp_path / "data.jsonl").write_text("{}\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for folder in ("adapter", "run/adapter"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "adapter_config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "one.txt").write_text("x")
    for name in ("packed.jsonl.gz", "book.md"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "cat.png").write_bytes(b"")
    (tmp_path / "model.gguf").write_bytes(b"")
    (tmp_path / "mine.toml").write_text("version = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "page", "kept", "says"),
    [
        (["data.jsonl"], "data", ["data.jsonl"], ""),
        (["data.jsonl", "cat.png"], "data", ["data.jsonl"], "cat.png"),
        (["model"], "model", ["model"], ""),
        (["empty"], "", [], "no config.json"),
        (["adapter"], "model", ["adapter"], ""),
        (["run"], "model", ["run"], ""),
        (["chapters"], "data", ["chapters"], ""),
        (["packed.jsonl.gz", "book.md"], "data", ["packed.jsonl.gz", "book.md"], ""),
        (["model", "empty"], "", [], "2 folders"),
        (["cat.png"], "", [], ".png"),
        (["model.gguf"], "model", ["model.gguf"], ""),
        (["mine.toml"], "recipe", ["mine.toml"], ""),
        (["data.jsonl", "mine.toml"], "data", ["data.jsonl"], "mine.toml"),
        (["not-there.csv"], "", [], ".csv"),
    ],
)
def test_what_is_dropped_goes_where_it_belongs(files, names, page, kept, says):
    drop = classify_drop([str(files / name) for name in names])
    assert (drop.page, drop.paths) == (page, [str(files / name) for name in kept])
    assert says in drop.what
    assert bool(drop.what) == bool(drop.remedy)


def test_a_drop_that_is_no_file_is_refused():
    assert classify_drop([""]).what


def mime(*paths):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drag(target, place, data, offered=MOVE | COPY):
    """Drag over a target and drop, as with Shift held: the source proposes Move. Return how each event was answered."""
    how = offered, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier
    events = QDragEnterEvent(place, *how), QDragMoveEvent(place, *how), QDropEvent(QPointF(place), *how)
    for event in events:
        QApplication.sendEvent(target, event)
    return [(event.isAccepted(), event.dropAction()) for event in events]


def test_a_drag_shows_what_may_be_dropped_and_a_drop_is_taken(qtbot, window, files):
    data = mime(files / "data.jsonl")
    veil = window.findChild(DropOverlay)
    keys, buttons = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
    entered = QDragEnterEvent(QPoint(5, 5), MOVE, data, buttons, keys)
    QApplication.sendEvent(window, entered)
    assert entered.isAccepted()
    assert veil.isVisible()
    QApplication.sendEvent(window, QDropEvent(QPointF(5, 5), MOVE, data, buttons, keys))
    assert not veil.isVisible()
    qtbot.waitUntil(lambda: window.shown_key == "data")
    assert window.bench.data_files == [str(files / "data.jsonl")]


@pytest.fixture
def box(qtbot):
    """A text box that fills a window which takes drops."""
    over = QWidget()
    qtbot.addWidget(over)
    made = QPlainTextEdit(over)
    made.resize(400, 300)
    DropOverlay(over, lambda: False)
    over.show()
    return made


def test_a_source_never_hears_that_its_file_was_moved_wherever_it_is_dropped(qtbot, box, files):
    """A source that hears that deletes the file. Text boxes would say so."""
    over, data = box.window(), mime(files / "data.jsonl")
    data.setText("file")  # as file managers do
    for target in (over, over.windowHandle()):
        assert drag(target, box.rect().center(), data) == [(True, COPY)] * 3
        assert drag(target, box.rect().center(), data, offered=MOVE)[-1] == (True, Qt.DropAction.IgnoreAction)
    dropped = []
    over.findChild(DropOverlay).dropped.connect(lambda paths, _instead: dropped.append(paths))
    qtbot.waitUntil(lambda: dropped == [[str(files / "data.jsonl")]] * 4)
    assert box.toPlainText() == ""


def test_words_are_still_dropped_into_a_text_box(box):
    words = QMimeData()
    words.setText("words")
    drag(box.window().windowHandle(), box.rect().center(), words)
    assert box.toPlainText() == "words"


def test_data_dropped_on_the_right_half_replaces_what_is_there(qtbot, window, files):
    window.bench.set_data_files(["/data/before.jsonl"])
    drag(window, QPoint(window.width() - 5, 5), mime(files / "data.jsonl"))
    qtbot.waitUntil(lambda: window.bench.data_files == [str(files / "data.jsonl")])


@pytest.mark.full
def test_a_drag_of_something_else_is_left_alone(window):
    text = QMimeData()
    text.setText("words")
    entered = QDragEnterEvent(QPoint(5, 5), MOVE, text, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    entered.ignore()
    QApplication.sendEvent(window, entered)
    assert not entered.isAccepted()
    assert not window.findChild(DropOverlay).isVisible()


@pytest.mark.full
def test_a_refused_drop_is_said_on_the_page_shown(window, files):
    window.go_to("runs")
    window.take([str(files / "cat.png")])
    assert window.shown_key == "runs"
    assert ".png" in window.page("runs").shown_banner.what


def test_a_refused_drop_goes_with_the_page(window, files):
    window.go_to("runs")
    window.take([str(files / "cat.png")])
    assert window.page("runs").shown_banner is not None
    window.go_to("settings")
    assert window.page("runs").shown_banner is None
