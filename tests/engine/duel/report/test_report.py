"""The report: one page that needs nothing else, whole, escaped, for light and dark."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from burnish_engine.duel.measures.outcome import CourseStretch
from burnish_engine.duel.report.curves import course_plots
from burnish_engine.duel.report.report import render
from burnish_engine.duel.sides.differences import DuelDifference
from burnish_engine.html_page.svg import cut_above, short, ticks

from support.runs.duels import duel_of, outcome, pairs

VOID = {"meta", "br"}


class Balance(HTMLParser):
    """Fails where tags are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def parsed(page):
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    return balance.tags


def whole_duel(**changes):
    grid = [
        outcome(side, 2.0 + side * 0.2, seed=0, phase="grid", rate=rate) for side in (0, 1) for rate in (3e-4, 1e-3)
    ]
    grid.append(outcome(1, math.nan, seed=0, phase="grid", rate=3e-3, diverged=True))
    return duel_of([*grid, *pairs([2.0, 2.1, 2.2], [2.3, 2.41, 2.49])], **changes)


def test_a_whole_page_says_everything():
    page = render(whole_duel())
    tags = parsed(page)
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "What the recipes do differently", "Verdict", "Figures", "Curves", "Learning rates",
        "Were the conditions the same?", "Every run", "How it was done", "Talk to them", "To do it again",
    ]  # fmt: skip
    for words in (
        "plain at 0.001 has a lower held-out loss", "adapter.rank", "torch 2.13.0", "not among the seeds",
        "burnish duel a.toml b.toml", "diverged after step 10", "robust standard deviations", "larger than 2.5 times",
    ):  # fmt: skip
        assert words in page
    drawings = [attributes for tag, attributes in tags if tag == "svg"]
    assert all(one.get("aria-hidden") or (one["role"] == "img" and one["aria-label"]) for one in drawings)
    assert len([one for one in drawings if "role" in one]) == 10
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")


def test_the_models_to_talk_to_are_each_sides_best_compared_run_the_better_side_first():
    runs = pairs([2.5, 2.41, 2.49], [2.1, 2.0, 2.2])
    later = [outcome(0, 2.6, seed=seed, phase="second look", rate=3e-4) for seed in (1, 2, 3)]
    commands = re.findall(r"burnish chat ([\w./-]+)", render(duel_of([*runs, *later])))
    assert commands == ["runs/seeds-b-lr0.001-seed2", "runs/seeds-a-lr0.001-seed2"]


def test_a_duel_decided_by_pairs_shows_them_and_no_perplexity_of_other_losses():
    runs = [
        outcome(side, 2.0, seed=seed, judge="pair_error", held_out_pairs=50, pair_accuracy=0.62 + 0.25 * side)
        for seed in (1, 2, 3) for side in (0, 1)
    ]  # fmt: skip
    page = render(duel_of(runs, judge="pair_error"))
    parsed(page)
    assert "Share of held-out pairs preferred wrongly" in page
    assert page.count('<td class="num">87.0</td>') == 3
    assert not re.search("held-out (loss, nats per token|perplexity)", page, re.IGNORECASE)


def test_the_course_of_runs_is_shown_over_steps_tokens_and_time_as_far_as_measured():
    def course(joules):
        return [
            CourseStretch(step=step, tokens=100 * step, seconds=2.0 * step, tokens_per_s=50.0 + step,
                    memory_bytes=2 * 10**9, joules=joules and 30.0 * step, events=step // 4)
            for step in range(2, 11, 2)
        ]  # fmt: skip

    whats = ("Speed, tokens/s", "Peak memory so far, GiB", "Energy so far, kJ", "Instability events so far")
    for joules, shown in ((True, whats), (None, (*whats[:2], whats[3]))):
        state = duel_of(pairs([2.0, 2.1, 2.2], [2.3, 2.4, 2.5], course=course(joules)))
        plots = course_plots(state)
        axes = ("optimizer steps", "tokens", "seconds of training")
        assert [title for title, _ in plots] == [f"{what}, over {axis}" for what in shown for axis in axes]
        page = render(state)
        parsed(page)
        assert all(title in page for title, _ in plots)
    assert course_plots(whole_duel()) == []  # duels of before


@pytest.mark.full
def test_nothing_is_loaded_from_anywhere():
    page = render(whole_duel())
    tags = parsed(page)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags}
    assert not re.search(r"https?://(?!www.w3.org/2000/svg)|url\((?!data:)|@import", page)


def test_every_drawing_is_sound():
    page = render(whole_duel())
    for drawing in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for shape in root.iter():
            for key in ("x1", "x2", "cx", "x"):
                assert -1 <= float(shape.attrib.get(key, 0)) <= width + 1
            for key in ("y1", "y2", "cy", "y"):
                assert -1 <= float(shape.attrib.get(key, 0)) <= height + 1
            for spot in shape.attrib.get("points", "").split():
                x, y = map(float, spot.split(","))
                assert -1 <= x <= width + 1
                assert -1 <= y <= height + 1


def test_whatever_a_person_wrote_is_escaped():
    evil = '<script>alert("1")</script>&'
    state = whole_duel(
        names=(evil, "b"),
        differences=[DuelDifference(key="data.system_prompt", values=[evil, "'x'"], kind="unfair", why="other data")],
        anyway=True,
    )
    page = render(state.model_copy(update={"command": f"burnish duel '{evil}'"}))
    parsed(page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;" in page


def test_what_was_compared_anyway_is_said_at_the_top():
    unfair = DuelDifference(key="train.epochs", values=[1.0, 2.0], kind="unfair", why="another token budget")
    page = render(whole_duel(differences=[unfair], anyway=True))
    assert "compared anyway, as asked (train.epochs: another token budget)" in page
    assert page.index("compared anyway") < page.index("<h2>")


def test_a_duel_that_has_hardly_begun_has_a_page_too():
    state = whole_duel().model_copy(update={"outcomes": [], "checks": [], "verdicts": [], "status": "unfinished"})
    page = render(state)
    parsed(page)
    assert "not finished" in page
    assert "<h2>Verdict" not in page


def test_diverged_everywhere_and_three_sides():
    runs = [outcome(side, math.nan, seed=seed, diverged=True, evaluations=[], training=[], tokens_per_s=None,
                    memory_bytes=None) for seed in (1, 2, 3) for side in (0, 1, 2)]  # fmt: skip
    page = render(duel_of(runs, names=("a", "b", "c")))
    parsed(page)
    assert "3 of 3" in page
    assert "not measured" in page


def test_axes_have_round_numbers():
    assert ticks(0.0, 10.0, 5) == [0, 2, 4, 6, 8, 10]
    assert ticks(2.013, 2.094, 4) == pytest.approx([2.02, 2.04, 2.06, 2.08])
    assert [short(value) for value in (0, 15, 1500, 2_000_000, 3.5e9)] == ["0", "15", "1.5k", "2M", "3.5G"]


def test_lines_are_cut_where_they_leave_the_plot():
    assert cut_above([(0, 4.0), (1, 2.0), (2, 1.0)], 3.0) == [[(0.5, 3.0), (1, 2.0), (2, 1.0)]]
    assert cut_above([(0, 1.0), (1, 3.0), (2, 1.0)], 2.0) == [[(0, 1.0), (0.5, 2.0)], [(1.5, 2.0), (2, 1.0)]]
    assert cut_above([(0, 1.0), (1, 1.0), (2, math.nan), (3, 1.0), (4, 1.0)], 2.0) == [
        [(0, 1.0), (1, 1.0)], [(3, 1.0), (4, 1.0)],
    ]  # fmt: skip
    assert cut_above([], 1.0) == cut_above([(0, 5.0), (1, 6.0)], 1.0) == []
