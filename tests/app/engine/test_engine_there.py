"""The engine of another machine: asked when wanted, lost, refused, slow, of another version; nothing waits for it."""

import psutil
import pytest
from app.facts import page_facts as facts
from app.facts.machine_facts import checkup, gpu, machine

from burnish_app.engine import engine_there
from burnish_app.engine.engine_there import EngineThere
from burnish_app.state.preferences import Preferences
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer

REFUSAL = {
    "type": "failure", "id": "", "what": "ssh does not get into office: Host key verification failed.",
    "remedy": "Accept its key.", "exit_code": 12,
}  # fmt: skip


@pytest.fixture
def there(client, office, burnish_home):
    office.result("machine", machine=machine())
    return EngineThere.beside(client)


def reached(qtbot, there):
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "ready")


def test_a_machine_is_asked_when_it_is_wanted_and_from_then_on_by_itself(qtbot, there, office, monkeypatch):
    there._soon.setInterval(0)
    there.choose("ssh:office")
    assert (there.state, there.client) == ("offered", None)
    there.connect_now()
    qtbot.waitUntil(lambda: there.machine is not None)
    assert there.state == "ready"
    there.choose("here")
    assert (there.where, there.machine) == ("", None)
    there.choose("ssh:office")
    qtbot.waitUntil(lambda: there.state == "ready")
    there.choose("ssh:elsewhere")
    assert there.state == "offered"
    assert not there._soon.isActive()


def test_all_pages_share_one(client, there):
    assert EngineThere.beside(client) is there


def test_how_the_connection_is_made_is_told(qtbot, there, office, tmp_path):
    office.set(
        "at_start",
        {"type": "progress", "id": "", "what": "Installing Burnish", "done": 0, "total": 0},
        {"until": str(tmp_path / "made")},
    )
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.doing == "Installing Burnish")
    assert there.state == "connecting"
    (tmp_path / "made").touch()
    qtbot.waitUntil(lambda: there.state == "ready")


def test_a_refusal_is_said_in_its_words_and_tried_again_only_when_asked(qtbot, there, office):
    office.set("at_start", REFUSAL, {"exit": 12})
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert there.failure.what == REFUSAL["what"]
    assert there.failure.remedy
    assert not there.client._restart.isActive()
    assert not Preferences().recent("place")
    office.set("at_start")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "ready")
    assert there.failure is None


def test_a_lost_connection_is_made_again_and_what_was_asked_fails_with_the_reason(qtbot, there, office):
    reached(qtbot, there)
    lost = {**REFUSAL, "what": "The connection to ssh:office ended: Broken pipe."}
    office.set("doctor", lost, {"exit": 12})
    states = []
    there.changed.connect(lambda: states.append((there.state, there.failure and there.failure.what)))
    there.check()
    assert there.is_checking
    qtbot.waitUntil(lambda: there.state == "lost")
    assert not there.is_checking
    qtbot.waitUntil(lambda: there.state == "ready")
    assert ("lost", lost["what"]) in states


def test_one_that_is_lost_for_good_is_no_longer_known(qtbot, there, office):
    reached(qtbot, there)
    office.set("at_start", REFUSAL, {"exit": 12})
    office.set("doctor", {"exit": 1})
    there.check()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert there.machine is None
    assert there.failure.what == REFUSAL["what"]


def test_another_version_is_refused_in_words(qtbot, there, office):
    office.set("at_start", {"protocol": 99})
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert "99" in there.failure.what
    assert not office.asked("machine")


def test_a_slow_answer_is_said_and_still_counts(qtbot, there, office, tmp_path):
    office.set("machine", {"until": str(tmp_path / "awake")}, *office._answers["machine"])
    there._slow.setInterval(0)
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "slow")
    assert there.failure.what.startswith("office ")
    (tmp_path / "awake").touch()
    qtbot.waitUntil(lambda: there.state == "ready")
    assert there.failure is None


def test_a_program_that_is_not_there_is_said(qtbot, there, monkeypatch):
    monkeypatch.setattr(engine_there, "serve_on", lambda _where: ("no-such-program",))
    there.choose("ssh:office")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert there.failure.what


def test_training_is_checked_there(qtbot, there, office):
    office.result("doctor", checkup=checkup(machine()))
    reached(qtbot, there)
    there.check()
    qtbot.waitUntil(lambda: there.checkup is not None)
    assert there.checkup.ready


@pytest.mark.full
def test_another_machine_is_let_go_without_waiting_and_its_process_ends(qtbot, there, office):
    reached(qtbot, there)
    process = psutil.Process(there.client.pid)
    client = there.client
    heard = []
    there.changed.connect(lambda: heard.append(there.where))
    there.choose("ssh:other")
    assert there.machine is None
    qtbot.waitUntil(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert client is not there.client
    assert set(heard) == {"ssh:other"}


@pytest.mark.full
def test_the_window_takes_the_connection_along(qtbot, client, there, office):
    client.start()
    reached(qtbot, there)
    process = psutil.Process(there.client.pid)
    client.close()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_connection_that_replies_come_through_outlives_the_choice_of_another_machine(qtbot, there, office):
    reached(qtbot, there)
    first = there.client_to("ssh:office")
    assert first is there.client
    there.choose("ssh:other")
    assert first.state == "ready"
    assert there.client_to("ssh:office") is first
    reached(qtbot, there)
    assert there.client is first


def offered(*names, chosen=0, plan=None):
    """Offers of a service: a machine with one GPU for each name."""
    offers = [
        PlannedOffer(
            name=name, machine=machine(gpu(0, name=name)), gpus=1, used_gpus=1, usd_per_hour=1.5,
            plan=plan or facts.plan(),
        )
        for name in names
    ]  # fmt: skip
    return PlaceOffers(where="hf", offers=offers, chosen=chosen, longest_s=3600)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("where", ["slurm:office", "hf", "sky:A100"])
def test_a_service_is_asked_by_this_machines_engine_for_its_machines(qtbot, there, client, answers, office, where):
    client.start()
    answers.result("offers", offers=offered("t4-small", "a10g-small", chosen=1))
    there.recipe_text = lambda: "first"
    there.choose(where)
    assert (there.state, there.is_machine) == ("offered", False)
    there.connect_now()
    assert there.state == "connecting"
    qtbot.waitUntil(lambda: there.state == "ready")
    assert [one["recipe"] for one in answers.asked("offers")] == ["first"]
    assert there.machine.gpus[0].name == "a10g-small"
    assert there.client is None
    assert not office.asked("machine")
    assert not there.is_outdated
    there.recipe_text = lambda: "second"
    assert there.is_outdated
    there.choose("here")
    assert (there.machine, there.offers, there.where) == (None, None, "")


def test_a_service_is_asked_again_in_the_background_once_its_answer_is_old(
    qtbot, there, client, answers, answered, monkeypatch
):
    client.start()
    answers.result("offers", offers=offered("t4-small"))
    there.choose("hf")
    there.refresh_offers()
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "ready")
    there.refresh_offers()
    answered()
    assert len(answers.asked("offers")) == 1, "nobody asked first, and then the answer is new"
    monkeypatch.setattr(engine_there, "_OLD_S", -1.0)
    answers.result("offers", offers=offered("a10g-small"))
    there.refresh_offers()
    assert (there.state, there.offers.best.name) == ("ready", "t4-small")
    qtbot.waitUntil(lambda: there.offers.best.name == "a10g-small")
    answers.failure("offers", "Hugging Face Jobs cannot be reached.", "Try again.", 12)
    there.refresh_offers()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert (there.offers, there.machine) == (None, None)


def test_a_service_that_refuses_says_so_and_an_answer_for_another_place_is_dropped(
    qtbot, there, client, answers, answered
):
    client.start()
    answers.failure("offers", "Hugging Face Jobs needs an access token.", "Log in.", 12)
    there.choose("hf")
    there.connect_now()
    qtbot.waitUntil(lambda: there.state == "failed")
    assert "token" in there.failure.what
    answers.result("offers", offers=offered("t4-small"))
    there.connect_now()
    there.choose("slurm")
    answered()
    assert (there.state, there.offers, there.machine) == ("offered", None, None)
