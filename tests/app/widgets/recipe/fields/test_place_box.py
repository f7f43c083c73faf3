"""The box for the place to train at: typed, and chosen from the places that are known."""

import pytest
from PySide6.QtCore import Qt

from burnish_app.widgets.recipe.fields.place_box import PlaceBox

pytestmark = pytest.mark.gui


@pytest.fixture
def box(qtbot, theme):
    made = PlaceBox()
    made.show_places(["here", "ssh:office", "hf"])
    made.setText("here")
    made.edits = []
    made.edited.connect(lambda: made.edits.append(made.text()))
    qtbot.addWidget(made)
    made.show()
    return made


def test_a_place_is_chosen_by_keys(qtbot, box):
    qtbot.keyClick(box, Qt.Key.Key_Down)
    assert (box.text(), box.edits) == ("ssh:office", ["ssh:office"])


def test_a_place_is_chosen_from_the_list_by_its_name(qtbot, box):
    box.showPopup()
    view = box.view()
    shown = [view.model().index(row, 0).data() for row in range(view.model().rowCount())]
    assert shown[1:] == ["office", "Hugging Face"]
    assert "machine" in shown[0]
    view.setCurrentIndex(view.model().index(2, 0))
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert (box.text(), box.edits) == ("hf", ["hf"])


def test_any_other_text_may_be_typed_and_is_not_completed(qtbot, box):
    box.lineEdit().selectAll()
    qtbot.keyClicks(box.lineEdit(), "ssh:o")
    qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)
    assert box.text() == "ssh:o"
    assert box.edits[-1] == "ssh:o"
    assert box.count() == 3


def test_new_places_leave_the_text_and_say_no_edit(box):
    box.setText("ssh:lab")
    box.show_places(["here", "ssh:lab"])
    assert (box.text(), box.currentIndex(), box.edits) == ("ssh:lab", 1, [])
    box.show_places(["here"])
    assert (box.text(), box.edits) == ("ssh:lab", [])
