"""The models of a comparison and of a sweep: each run in its place, and the best one marked."""

import pytest
from app.facts.run_summaries import summary
from app.page_scenes.several_scenes import SETTINGS
from PySide6.QtCore import Qt

from burnish_app.comparison.swept import SweepRow
from burnish_app.item_models.comparison import ComparisonModel
from burnish_app.item_models.sweep import SweepModel
from burnish_app.wording.comparison_text import ComparedRow
from burnish_engine.contract.facts.sweeps import SweepFile

pytestmark = pytest.mark.gui
INK, FONT = Qt.ItemDataRole.UserRole, Qt.ItemDataRole.FontRole


def test_each_run_has_its_title_its_line_and_its_cells(qapp):
    model = ComparisonModel(swatch="line {}".format)
    loss = ComparedRow("Loss", ("1.5", "1.25"), best=frozenset({1}), hint="Lower is better")
    model.show(["a", "b"], [ComparedRow("Outcome"), loss, ComparedRow("Steps", ("7", "8"))])
    heads = [model.headerData(at, Qt.Orientation.Horizontal) for at in range(3)]
    lines = [model.headerData(at, Qt.Orientation.Horizontal, Qt.ItemDataRole.DecorationRole) for at in range(3)]
    assert (heads, lines) == (["", "a", "b"], [None, "line 0", "line 1"])
    assert [model.index(1, at).data() for at in range(3)] == ["Loss", "1.5", "1.25"]
    assert [model.index(0, at).data() for at in range(3)] == ["Outcome", "", ""]
    assert [model.index(1, at).data(INK) for at in range(3)] == ["muted", "", "success"]
    assert [bool(model.index(1, at).data(FONT)) for at in range(3)] == [False, False, True]
    assert model.index(0, 0).data(FONT).weight() > model.index(1, 2).data(FONT).weight(), "of headings"
    assert model.index(1, 1).data(Qt.ItemDataRole.ToolTipRole) == loss.hint
    assert model.index(2, 1).data(Qt.ItemDataRole.ToolTipRole) == "7"


def test_a_sweep_s_settings_come_first_and_its_best_run_is_marked(qapp):
    model = SweepModel(SweepFile(name="desk", created=0.0, settings=SETTINGS, runs=[]))
    runs = [summary("finished", 600, folder=f"/runs/{name}", evaluation_loss=1.25) for name in "ab"]
    model.set_rows([SweepRow(("0.0001", "8"), runs[0], 0.0), SweepRow(("0.0002", "32"), runs[1], 0.5)])
    heads = [model.headerData(at, Qt.Orientation.Horizontal) for at in range(model.columnCount())]
    best, held_out, step = (heads.index(name) for name in ("To best", "Held out", "Step"))
    assert heads[:2] == ["Learning rate", "Rank"]
    assert [model.index(1, at).data() for at in (0, 1, held_out, step)] == ["0.0002", "32", "1.250", "600 / 600"]
    assert [model.index(row, best).data(INK) for row in (0, 1)] == ["success", ""]
    sides = [model.index(0, at).data(Qt.ItemDataRole.TextAlignmentRole) for at in range(len(heads))]
    numbers = [name for name, side in zip(heads, sides, strict=True) if side & Qt.AlignmentFlag.AlignRight]
    assert numbers == ["Step", "Held out", "To best", "Took"]
