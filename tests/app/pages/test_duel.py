"""The page Duel: sides, plan, start, progress and verdict."""

import pytest
from app.facts.run_summaries import summary
from app.page_scenes.several_scenes import a_duel, duel_runs, factorial, verdicts
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton

from burnish_app.widgets.duel.interval_plot import IntervalPlot
from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe
from burnish_engine.contract.run.duels import DuelDifferenceFacts
from burnish_engine.contract.serve.messages import Failure
from burnish_engine.runs.store import create_run


@pytest.fixture
def page(window, answers, answered):
    window.runs_poller.stop()
    answers.result("plan_duel", duels=[a_duel("planned")])
    window.bench.set_data_files(["/data/a.jsonl"])
    window.go_to("duel")
    answered()  # the lists that were asked for when the page was shown
    return window.page("duel")


def asked_sides(answers, method="plan_duel"):
    return [(side["name"], parse_recipe(side["recipe"])) for side in answers.asked(method)[-1]["sides"]]


@pytest.mark.full
def test_the_draft_against_the_draft_with_another_setting_is_planned_first(qtbot, page, answers, answered):
    qtbot.waitUntil(page.primary.isEnabled)
    (first, ours), (second, theirs) = asked_sides(answers)
    assert ours == page.bench.recipe
    assert theirs.train.learning_rate != ours.train.learning_rate
    assert first != second
    assert "12 to 28 runs" in page.planning.card.verdict.text()
    answered()
    assert not answers.asked("start_duel")


@pytest.mark.full
def test_a_side_says_what_it_is(page, window):
    assert str(page.bench.recipe.train.learning_rate) in page.planning.first.about.text()
    assert not page.planning.second.about.isVisible()  # the changed settings stand there
    window.bench.set_recipe(Recipe.model_validate({"train": {"learning_rate": 0.0123}}))
    assert "0.0123" in page.planning.first.about.text()


@pytest.mark.full
def test_another_choice_is_planned_again(qtbot, page, answers):
    qtbot.waitUntil(page.primary.isEnabled)
    row = page.planning.second.settings.rows[0]
    row.name.setCurrentIndex(row.name.findData("adapter.rank"))
    row.values.setText("64")
    assert not page.primary.isEnabled()
    qtbot.waitUntil(page.primary.isEnabled)
    assert asked_sides(answers)[1][1].adapter.rank == 64
    page.planning.rates.button("own").click()
    page.planning.seeds.setValue(5)
    qtbot.waitUntil(page.primary.isEnabled)
    assert (answers.asked("plan_duel")[-1]["factors"], answers.asked("plan_duel")[-1]["seeds"]) == ([1.0], 5)


@pytest.mark.full
def test_settings_of_the_draft_are_the_factors_of_a_duel(qtbot, page, answers):
    qtbot.waitUntil(page.primary.isEnabled)
    answers.result("plan_duel", duels=[factorial("planned")])
    page.planning.kind.button("factors").click()
    qtbot.waitUntil(lambda: bool(answers.asked("plan_duel")[-1]["tried"]))
    assert not page.planning.first.isVisible()
    asked = answers.asked("plan_duel")[-1]
    assert asked["tried"] == [{"key": "masking.kind", "values": ["off", "magma"]}]
    assert [recipe for _, recipe in asked_sides(answers)] == [page.bench.recipe]
    page.planning.factors.rows[0].values.setText("sometimes")
    qtbot.waitUntil(lambda: not page.primary.isEnabled())
    page.planning.kind.button("recipes").click()
    qtbot.waitUntil(lambda: len(answers.asked("plan_duel")[-1]["sides"]) == 2)


def test_verdicts_on_factors_name_them_and_no_side_is_the_winner(page):
    known = [one.model_copy(update={"sides": (2, 0), "names": ("masking magma", "masking off"), "winner": 2})
             for one in verdicts()]  # fmt: skip
    page.show_duels([factorial("finished", folder="/duels/1", verdicts=known)], "/duels/1")
    assert page.former.isVisible()
    assert not page.primary.isVisible()
    losses, shares = (plot for plot in page.verdict.findChildren(IntervalPlot) if plot.isVisible())
    assert [one.names for one in losses.verdicts] == [("masking magma", "masking off")]
    assert "draft" not in losses.left + losses.right + shares.left + shares.right


def test_two_runs_that_were_chosen_elsewhere_are_the_sides(qtbot, window, page, answers):
    runs = [create_run(Recipe.model_validate({"name": name, "adapter": {"rank": rank}}))
            for name, rank in (("small", 4), ("large", 64))]  # fmt: skip
    page.runs_changed([summary("finished", folder=str(paths.root), name=paths.root.name) for paths in runs])
    window.bench.set_duelists([str(paths.root) for paths in runs])
    qtbot.waitUntil(lambda: bool(answers.asked("plan_duel")) and asked_sides(answers)[0][1].adapter.rank == 4)
    assert asked_sides(answers)[1][1].adapter.rank == 64


def test_a_recipe_file_is_a_side(qtbot, page, answers, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(dump_recipe(Recipe.model_validate({"adapter": {"rank": 2}})), encoding="utf-8")
    page.planning.first.take_file(str(file))
    qtbot.waitUntil(lambda: bool(answers.asked("plan_duel")) and asked_sides(answers)[0][1].adapter.rank == 2)
    assert asked_sides(answers)[0][0] == "mine"
    file.write_text("nonsense", encoding="utf-8")
    page.planning.first.take_file(str(file))
    assert page.planning.first.about.property("look") == "error"
    assert not page.primary.isEnabled()


def test_an_unfair_duel_is_refused_with_its_reason_and_can_be_made_anyway(qtbot, page, answers):
    answers.failure(
        "plan_duel", "train.epochs is 2 / 3 (another token budget).", "Or add --anyway: they are compared.", 2
    )
    page.planning.seeds.setValue(4)
    qtbot.waitUntil(page.planning.card.unfair.isVisible)
    assert setting_term("train.epochs") in page.planning.card.problem.text()
    assert not page.primary.isEnabled()
    answers.result("plan_duel", duels=[a_duel("planned")])
    page.planning.card.unfair.click()
    qtbot.waitUntil(page.primary.isEnabled)
    assert answers.asked("plan_duel")[-1]["anyway"] is True
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("start_duel")) == 1)
    assert answers.asked("start_duel")[0]["anyway"] is True


def test_a_duel_that_was_started_is_followed(qtbot, page, answers):
    made = duel_runs(user_data_dir() / "duel", 8)
    running = a_duel("running", folder="/duels/1", made=made[:6], current=made[6].model_copy(update={"ended": ""}))
    answers.result("start_duel", run="/duels/1")
    qtbot.waitUntil(page.primary.isEnabled)
    answers.result("duels", duels=[running])
    page.primary.click()
    qtbot.waitUntil(page.progress.isVisible)
    assert not page.planning.first.isVisible()
    assert page.status == "busy"
    assert "6 of 12" in page.progress.state.text()
    qtbot.waitUntil(lambda: len(page.curves.charts.curves.held_out) == 1)  # the run that is compared
    answers.result("duels", duels=[running.model_copy(update={"made": made[:7], "current": None})])
    qtbot.waitUntil(lambda: "7 of 12" in page.progress.state.text())  # it looks again by itself
    page.stop.click()
    qtbot.waitUntil(lambda: len(answers.asked("stop_duel")) == 1)
    assert answers.asked("stop_duel")[0]["folder"] == "/duels/1"


def finished(page, won=True):
    made = duel_runs(user_data_dir() / "duel", 12)
    duel = a_duel(
        "finished", folder=str(user_data_dir() / "duel"), made=made, verdicts=verdicts(won=won),
        headline="rank 32 wins.", report="/duels/1/report.html",
    )  # fmt: skip
    page.show_duels([duel], duel.folder)
    return duel


@pytest.mark.full
def test_the_verdict_shows_intervals_of_every_measure_and_all_compared_runs(qtbot, page):
    finished(page)
    assert page.verdict.isVisible()
    assert page.verdict.headline.text() == "rank 32 wins."
    losses, shares = (plot for plot in page.verdict.findChildren(IntervalPlot) if plot.isVisible())
    assert (len(losses.verdicts), len(shares.verdicts)) == (1, 3)
    # A difference is the first side less the second: to the right of zero the second has the lower loss.
    assert ("draft" in losses.left, "rank 32" in losses.right) == (True, True)
    assert ("rank 32" in shares.left, "draft" in shares.right) == (True, True)
    qtbot.waitUntil(lambda: len(page.curves.charts.curves.held_out) == 6)
    assert page.report.isVisible()
    assert (page.primary.isVisible(), page.primary.text()) == (True, "Winner as draft")


@pytest.mark.full
def test_a_duel_by_pairs_shows_the_intervals_of_that_measure(page):
    duel = finished(page)
    judged = duel.verdicts[0].model_copy(
        update={"measure": "pair_error", "title": "held-out pairs preferred wrongly", "form": "points"}
    )
    page.show_duels(
        [duel.model_copy(update={"judge": "pair_error", "verdicts": [judged, *duel.verdicts]})], duel.folder
    )
    plot = next(plot for plot in page.verdict.findChildren(IntervalPlot) if plot.isVisible())
    assert [one.measure for one in plot.verdicts] == ["pair_error"]
    assert "points" in plot.accessibleName()
    assert page.primary.text() == "Winner as draft"


@pytest.mark.full
def test_the_legend_hides_all_runs_of_a_side(qtbot, page):
    finished(page)
    charts = page.curves.charts
    qtbot.waitUntil(lambda: len(charts.curves.held_out) == 6)
    entries = [charts.large.legend(f"run{place}") for place in range(6)]
    assert [place for place, entry in enumerate(entries) if entry.isVisible()] == [0, 3]
    entries[3].click()
    assert [charts.small[-1].content.shown(f"run{place}") for place in range(6)] == [True] * 3 + [False] * 3


@pytest.mark.full
def test_losses_of_different_objectives_are_not_laid_over_each_other(page):
    made = duel_runs(user_data_dir() / "duel", 12)
    names = lambda: {chart.name for chart in (page.curves.charts.large, *page.curves.charts.small)}  # noqa: E731
    duel = a_duel("running", folder="/duels/1", made=made)
    page.show_duels([duel], duel.folder)
    assert {"Held-out loss", "Training loss"} <= names()
    objectives = DuelDifferenceFacts(key="preference.objective", values=["dpo", "orpo"], kind="compared")
    page.show_duels([duel.model_copy(update={"differences": [*duel.differences, objectives]})], duel.folder)
    assert not [name for name in names() if "loss" in name or "Margin" in name]
    assert "Preferred" in page.curves.charts.large.name


@pytest.mark.full
def test_a_duel_that_ends_while_another_page_is_shown_is_noticed(qtbot, window, page, answers):
    made = duel_runs(user_data_dir() / "duel", 2)
    running = a_duel("running", folder="/duels/1", made=made)
    page.show_duels([running], "/duels/1")
    assert page.status == "busy"
    answers.result("duels", duels=[running.model_copy(update={"status": "finished"})])
    page._look.stop()
    window.go_to("settings")
    page.runs_changed([])
    qtbot.waitUntil(lambda: page.status == "done")


@pytest.mark.full
def test_without_a_winner_there_is_none_to_take(page):
    finished(page, won=False)
    assert not page.primary.isVisible()


def test_the_winner_becomes_the_draft_at_its_best_rate(qtbot, window, page):
    duel = finished(page)
    folder = user_data_dir() / "duel" / "recipes"
    folder.mkdir()
    (folder / "b.toml").write_text(
        dump_recipe(Recipe.model_validate({"adapter": {"rank": 32}, "train": {"learning_rate": 0.5}})), encoding="utf-8"
    )
    page.primary.click()
    assert window.bench.recipe.adapter.rank == 32
    assert window.bench.recipe.train.learning_rate == duel.made[-1].rate
    qtbot.waitUntil(lambda: window.shown_key == "recipe")


@pytest.mark.full
def test_a_stopped_duel_goes_on(qtbot, page, answers):
    stopped = a_duel(
        "stopped", folder="/duels/1", made=duel_runs(user_data_dir() / "duel", 2), message="The disk is full."
    )
    page.show_duels([stopped], "/duels/1")
    assert page.progress.message.text() == "The disk is full."
    assert page.primary.isEnabled()
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("resume_duel")) == 1)


@pytest.mark.full
def test_a_new_duel_is_begun_beside_a_former_one(qtbot, page):
    finished(page)
    page.again.click()
    assert page.planning.first.isVisible()
    assert not page.verdict.isVisible()
    qtbot.waitUntil(page.primary.isEnabled)


def test_a_failure_to_start_is_said(qtbot, page, answers):
    answers.failure("start_duel", "The disk is full.", "Free some space.")
    qtbot.waitUntil(page.primary.isEnabled)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert not page.shown_banner.findChildren(QPushButton)[:-1]
    assert page.primary.isEnabled()


@pytest.mark.full
def test_what_the_engine_says_is_said_in_words_of_the_window(qtbot, page):
    remedy = "Make them equal, or add --anyway: the report says so."
    page.planning.card.show_failure(Failure(id="", what="A and B differ in train.epochs.", remedy=remedy, exit_code=2))
    assert page.planning.card.unfair.isVisible()
    assert "--" not in page.planning.card.problem.text()
    assert "Compare anyway" in page.planning.card.problem.text()
    page.failed(Failure(id="x", what="It holds something.", remedy="Continue: burnish duel --resume /x", exit_code=2))
    assert page.shown_banner.what == "It holds something."
    assert "burnish" not in page.shown_banner.accessibleName()


def test_a_running_duel_goes_on_in_the_sidebar_and_a_press_shows_it(qtbot, window, answers):
    window.runs_poller.stop()
    answers.result("duels", duels=[a_duel("running", folder="/duels/1"), a_duel("finished", folder="/duels/2")])
    window.go_to("runs")
    window.page("duel")
    window.runs_poller.updated.emit([])
    button = window.sidebar.activity
    qtbot.waitUntil(button.isVisible)
    (going,) = button.activities
    assert going.page == "duel"
    assert going.title in window.windowTitle()
    window.activity.opened.emit(going)
    qtbot.waitUntil(lambda: window.shown_key == "duel")
    assert window.page("duel").duel.folder == "/duels/1"


def test_a_stopped_duel_can_be_reported(page):
    page.show_duels([a_duel("stopped", folder="/duels/1", message="The disk is full.")], choose="/duels/1")
    page.copy.click()
    assert "The disk is full." in QGuiApplication.clipboard().text()
