"""The Data page over the real engine: what is ambiguous is asked, what is odd is acted on, tokens are shown."""

import json

import pytest
from app.pages.test_data import press
from app.pages.test_hardware import words
from app.studio import make_tiny
from app.test_whole_way import studio  # noqa: F401 a fixture

from burnish_engine.contract.recipe.recipe_file import parse_recipe

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny model and an ambiguous data file with copies and an overlong row."""
    folder = make_tiny(tmp_path_factory.mktemp("tiny"))
    rows = [
        {
            "question": f"What is lamp {n}?",
            "prompt": f"Explain lamp {n}.",
            "answer": f"Lamp {n} is a lamp — ünique {n}.",
        }
        for n in range(60)
    ]
    rows += rows[:4]
    (folder / "faq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_from_a_question_to_cleaned_rows(studio, tiny):  # noqa: F811
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    studio.drop(window, tiny / "faq.jsonl")
    studio.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    studio.wait(page.columns.editor.isVisible)
    assert bench.dataset is None
    assert "faq.jsonl" in page.shown_banner.what
    ways = [button.text() for button in page.columns.editor._readings.buttons()]
    assert len(ways) == 2
    assert all(way.endswith("asked, answer replied") for way in ways)
    studio.press(next(button for button in page.columns.editor._readings.buttons() if "Question" in button.text()))
    studio.press(page.columns.editor.use)
    studio.wait(lambda: bench.dataset is not None)
    assert "What is lamp 0?" in bench.dataset.report.readings[0].example["prompt"]
    studio.wait(lambda: "What is lamp" in page.rows.view.toPlainText())
    look_at_tokens(studio, page)
    leave_out_copies(studio, page, bench)
    suggestion_reads_it_the_same(studio, window, bench)


def look_at_tokens(studio, page):  # noqa: F811
    before = page.rows.view.toPlainText()
    pieces = len(page.rows.view._pieces)
    studio.press(page.rows.tokens)
    studio.wait(lambda: len(page.rows.view._pieces) > 3 * pieces)
    assert page.rows.view.toPlainText() == before, "the same text, token by token"
    studio.press(page.rows.tokens)


def leave_out_copies(studio, page, bench):  # noqa: F811
    finding = next(one for one in bench.dataset.report.findings if one.kind == "duplicates")
    assert finding.rows == 4
    studio.wait(lambda: "Lines 61, 62, 63, 64 of faq.jsonl" in words(page))
    used = bench.dataset.report.used_rows
    press(page, "Leave out copies")
    studio.wait(lambda: bench.dataset is not None and bench.dataset.report.used_rows == used - 4)
    studio.wait(lambda: "4 rows left out: the same as an earlier row" in words(page))
    press(page, "Undo")
    studio.wait(lambda: bench.dataset is not None and bench.dataset.report.used_rows == used)


def suggestion_reads_it_the_same(studio, window, bench):  # noqa: F811
    studio.visit(window, "recipe")
    studio.wait(lambda: bench.suggestion is not None)
    assert bench.recipe.data.columns == ["prompt=question", "completion=answer"]
    window.page("recipe")._take_all()
    assert bench.recipe.data.shape == "prompt_completion", "what was said about the data is no suggestion's"
    assert parse_recipe(bench.recipe_toml) == bench.recipe
