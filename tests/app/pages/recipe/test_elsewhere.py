"""A recipe that trains on another machine: asked what it is, planned for, and started there."""

import pytest
from app.facts import page_facts as facts
from app.facts.machine_facts import checkup, gpu, machine
from app.facts.run_summaries import summary
from app.pages.recipe.recipe_page import settle
from app.widgets.test_page_widgets import type_into
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from burnish_app.widgets.recipe.fields.place_box import PlaceBox
from burnish_app.widgets.recipe.place_card import PlaceCard
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, SharedSteps

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_a_run_elsewhere_is_not_judged_by_this_machine(qtbot, answers, page, bench):
    """One field says where to run; this machine's plan says nothing about another one, and does not hold it up."""
    settle(qtbot, page, bench)
    before = len(answers.asked("estimate"))
    type_into(qtbot, page.form.row("devices.where"), "ssh:office")
    qtbot.waitUntil(lambda: bench.plan is None and not page.plans.is_waiting)
    assert bench.recipe.devices.where == "ssh:office"
    assert len(answers.asked("estimate")) == before
    assert page.primary.isEnabled()
    assert "office" in page.primary.text(), "it does not start here"
    assert not page.fit.time.isVisible(), "figures of no machine"
    assert page.fit.verdict.text() != "It fits."
    assert [time.text() for time in page.settings.presets._times.values()] == ["", "", ""]
    type_into(qtbot, page.form.row("devices.where"), "here")
    qtbot.waitUntil(lambda: bench.plan is not None)
    assert "office" not in page.primary.text()
    assert page.fit.time.isVisible()
    qtbot.waitUntil(lambda: all(time.text() for time in page.settings.presets._times.values()))


@pytest.fixture
def there(qtbot, page, bench, office):
    """The machine that the recipe names, which nobody asked yet."""
    settle(qtbot, page, bench)
    office.result("machine", machine=machine(gpu(0, name="NVIDIA H100", vram_free_bytes=70 * 2**30)))
    type_into(qtbot, page.form.row("devices.where"), "ssh:office")
    qtbot.waitUntil(lambda: page.there.where == "ssh:office")
    return page.there


def last(answers, method):
    return answers.asked(method)[-1]


@pytest.mark.full
def test_a_machine_elsewhere_is_asked_for_its_cards_and_the_recipe_is_planned_for_it(
    qtbot, answers, page, bench, there
):
    """Plan and suggestion come from here, where model and data are, for the cards and the memory of that machine."""
    place = page.findChild(PlaceCard)
    assert place.ask.isVisible()
    assert bench.plan is None
    before = len(answers.asked("suggest"))
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None)
    for method in ("estimate", "suggest"):
        assert last(answers, method)["machine"]["gpus"][0]["name"] == "NVIDIA H100"
    assert len(answers.asked("suggest")) == before + 1
    assert "NVIDIA H100" in place.facts.text()
    assert page.fit._memory.text().endswith("of office.")
    assert page.foot.note.text().startswith("office: ")
    assert not place.ask.isVisible()
    assert bench.recipe.devices.where == "ssh:office"
    type_into(qtbot, page.form.row("devices.where"), "here")
    qtbot.waitUntil(lambda: last(answers, "estimate")["machine"] is None and bench.plan is not None)
    qtbot.waitUntil(lambda: last(answers, "suggest")["machine"] is None)
    assert not place.isVisible()
    assert "office" not in page.fit._memory.text()


@pytest.mark.full
def test_the_times_of_the_presets_are_that_machines(qtbot, answers, page, bench, there):
    times = page.settings.presets._times.values()
    qtbot.waitUntil(lambda: not any(time.text() for time in times))  # those of this machine
    page.there.connect_now()
    qtbot.waitUntil(lambda: all(time.text() for time in times))
    assert last(answers, "estimate")["machine"]["gpus"][0]["name"] == "NVIDIA H100"


@pytest.mark.full
def test_a_machine_that_refuses_is_said_beside_the_verdict_and_holds_nothing_up(qtbot, page, bench, there, office):
    refusal = {"type": "failure", "id": "", "what": "Host key verification failed.", "remedy": "Accept it."}
    office.set("at_start", {**refusal, "exit_code": 12}, {"exit": 12})
    place = page.findChild(PlaceCard)
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "Host key verification failed." in place.words.text())
    assert bench.plan is None
    assert page.primary.isEnabled()
    office.set("at_start")
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None)
    assert not place.words.isVisible()


@pytest.mark.full
def test_a_lost_machine_takes_its_verdict_back_and_leaves_the_settings(qtbot, answers, page, bench, there, office):
    page.there.connect_now()
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    suggested = len(answers.asked("suggest"))
    office.set("at_start", {"exit": 12})
    office.set("doctor", {"exit": 12})
    qtbot.mouseClick(page.findChild(PlaceCard).check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is None and page.there.state == "failed")
    assert len(answers.asked("suggest")) == suggested


def test_the_connection_can_be_given_up_while_it_is_made(qtbot, page, there, office, tmp_path):
    office.set("at_start", {"until": str(tmp_path / "never")})
    place = page.findChild(PlaceCard)
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(place.busy.isVisible)
    place.busy.cancel.emit()
    assert place.ask.isVisible()
    assert there.client is None
    (tmp_path / "never").touch()


def test_a_run_that_does_not_fit_there_is_handed_over_only_when_that_is_wanted(qtbot, answers, page, bench, there):
    unfit = facts.plan(fits=False, problems=["It needs 4.00 GiB more."])
    answers.result("estimate", plan=unfit)
    answers.result("start", run="/runs/x")
    there.connect_now()
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    page.start()
    assert "on office" in page.shown_banner.what
    assert not answers.asked("start")
    action = next(one for one in page.shown_banner.findChildren(QPushButton) if "anyway" in one.text())
    qtbot.mouseClick(action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(answers.asked("start")))
    assert last(answers, "start")["anyway"]


@pytest.mark.full
def test_a_check_there_says_whether_training_works(qtbot, page, there, office):
    office.result("doctor", checkup=checkup(machine(gpu(0)), ready=False, problems=["No compiler was found."]))
    page.there.connect_now()
    place = page.findChild(PlaceCard)
    qtbot.waitUntil(place.check.isVisible)
    qtbot.mouseClick(place.check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "No compiler was found." in place.verdict.text())


def test_a_service_is_asked_for_its_machines_and_the_recipe_is_planned_for_the_one_it_would_take(
    qtbot, answers, page, bench
):
    settle(qtbot, page, bench)
    shared = SharedSteps(gpus=4, passes=2, times=3.9, step_ms=900.0, exchange_ms=3.0, exchange_bytes=2**27)
    plan = facts.plan(shared=shared)
    card = machine(*(gpu(index, name="NVIDIA A100") for index in range(4)))
    offer = PlannedOffer(name="a100x4", machine=card, gpus=4, used_gpus=4, usd_per_hour=10.0, plan=plan)
    unfit = offer.model_copy(update={"name": "t4-small", "plan": facts.plan(fits=False)})
    answers.result("offers", offers=PlaceOffers(where="hf", offers=[unfit, offer], chosen=1, longest_s=3600))
    answers.result("estimate", plan=plan)
    type_into(qtbot, page.form.row("devices.where"), "hf")
    place = page.place
    qtbot.waitUntil(place.ask.isVisible)
    assert bench.plan is None
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    assert last(answers, "offers")["recipe"]
    assert last(answers, "estimate")["machine"]["gpus"][0]["name"] == "NVIDIA A100"
    usd = 10.0 * plan.total_seconds / 3600
    for word in ("4 GPUs", "2 passes", "3.0 ms"):
        assert word in place.takes.text()
    assert "USD" not in place.takes.text(), "which the list says"
    best, other = place.facts.text().splitlines()
    assert best.startswith("a100x4")
    assert f"{usd:.2f} USD" in best
    assert other.startswith("t4-small")
    assert "a100x4" in page.fit._memory.text()
    assert not place.check.isVisible()
    # Another recipe may suit another machine.
    qtbot.waitUntil(lambda: not page.plans.is_waiting)
    page.settings.presets.chosen.emit("quick")
    qtbot.waitUntil(place.ask.isVisible)
    qtbot.waitUntil(lambda: "USD" in place.takes.text())


@pytest.mark.full
def test_a_place_that_is_none_is_said_at_its_field(qtbot, page, bench):
    type_into(qtbot, page.form.row("devices.where"), "ssh:-oProxyCommand=x")
    assert page.form.recipe() is None
    assert not page.primary.isEnabled()


@pytest.mark.full
def test_a_service_is_asked_again_when_the_page_is_shown_later(qtbot, answers, page, window, bench, monkeypatch):
    settle(qtbot, page, bench)
    offer = PlannedOffer(name="t4", machine=machine(gpu(0)), gpus=1, used_gpus=1, usd_per_hour=1.0, plan=facts.plan())
    answers.result("offers", offers=PlaceOffers(where="hf", offers=[offer], chosen=0, longest_s=3600))
    type_into(qtbot, page.form.row("devices.where"), "hf")
    qtbot.waitUntil(page.place.ask.isVisible)
    qtbot.mouseClick(page.place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.there.state == "ready")
    monkeypatch.setattr("burnish_app.engine.engine_there._OLD_S", -1.0)
    window.go_to("data")
    window.go_to("recipe")
    qtbot.waitUntil(lambda: len(answers.asked("offers")) == 2)
    assert page.there.offers is not None


@pytest.mark.full
def test_places_of_earlier_runs_are_offered(page):
    page.runs_changed([summary("finished"), summary("finished", where="ssh:lab")])
    box = page.form.row("devices.where").findChild(PlaceBox)
    offered = [box.itemText(index) for index in range(box.count())]
    assert offered[:2] == ["here", "ssh:lab"]
    assert box.text() == "here"
