"""The card about this machine on Start."""

import pytest
from app.facts import machine_facts as machines

pytestmark = pytest.mark.gui


@pytest.fixture
def card(window):
    window.go_to("start")
    return window.page("start").machine


def test_it_says_what_the_machine_trains_on_and_whether_it_is_ready(qtbot, answers, window, card):
    machine = machines.machine(machines.gpu())
    assert card.verdict.isHidden()
    window.bench.set_machine(machine, None)
    assert card.device.text() == "NVIDIA GeForce RTX 4090, 24.0 GiB"
    assert card.verdict.text() == "Not checked yet"
    window.bench.set_machine(machine, machines.checkup(machine))
    assert card.verdict.text() == "Ready"
    window.bench.set_machine(machine, machines.checkup(machine, ready=False, problems=["The driver is too old."]))
    assert card.verdict.text() == "Not ready"


def test_it_asks_what_the_machine_is_where_that_is_not_known(qtbot, answers, window, card):
    answers.result("machine", machine=machines.pair())
    window.bench.set_machine(None, None)
    card.ask()
    qtbot.waitUntil(lambda: card.device.text() == "2 x NVIDIA GeForce RTX 4090, 48.0 GiB")
    asked = len(answers.asked("machine"))
    card.ask()
    assert len(answers.asked("machine")) == asked


def test_a_check_up_of_former_hardware_is_none(held, held_window):
    bench, card = held_window.bench, held_window.page("start").machine
    hardware = held_window.page("hardware")
    former = machines.machine(machines.gpu())
    bench.set_machine(former, machines.checkup(former))
    assert card.verdict.text() == "Ready"
    held.answer("machine", machine=machines.pair())
    assert card.device.text() == "2 x NVIDIA GeForce RTX 4090, 48.0 GiB"
    assert card.verdict.text() == "Not checked yet"
    assert bench.checkup is None
    assert hardware.state_pill.isHidden()


def test_it_says_why_the_machine_could_not_be_inspected(held, held_window):
    card = held_window.page("start").machine
    held.fail("machine", "nvidia-smi does not answer.", "Restart the machine.")
    assert "nvidia-smi does not answer." in card.device.text()
    card.ask()
    held.answer("machine", machine=machines.pair())
    assert card.device.text() == "2 x NVIDIA GeForce RTX 4090, 48.0 GiB"


def test_the_step_start_has_the_status_of_the_check_up(qtbot, answers, window):
    machine = machines.machine(machines.gpu())
    answers.result("machine", machine=machine)
    answers.result("doctor", checkup=machines.checkup(machine))
    window.go_to("hardware")
    qtbot.waitUntil(lambda: window.sidebar.button("start").status == "done")
