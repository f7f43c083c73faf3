import pytest
from app import page_facts as facts
from PySide6.QtWidgets import QLabel

pytestmark = pytest.mark.gui


def words(page):
    return "\n".join(label.text() for label in page.findChildren(QLabel) if label.isVisibleTo(page))


def test_the_machine_is_shown_at_once_and_checked_in_the_background(qtbot, answers, window):
    answers.result("machine", machine=facts.machine(facts.gpu()))
    answers.set("doctor", {"type": "progress", "what": "Running rms_norm", "done": 1, "total": 4}, {"hold": True})
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "21.9 GiB free of 24.0 GiB" in words(page))
    qtbot.waitUntil(lambda: "Running rms_norm  25 %" in words(page))
    assert page.status == "busy"
    page._checking.cancel.emit()
    qtbot.waitUntil(lambda: page.status == "ready")


def test_a_good_checkup_is_kept_for_the_next_start(qtbot, answers, window, client, bench):
    checkup = facts.checkup(facts.machine(facts.gpu()), notes=["It sleeps after 30 minutes."])
    answers.result("machine", machine=checkup.machine)
    answers.result("doctor", checkup=checkup)
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "Ready to train" in words(page))
    assert "It sleeps after 30 minutes." in words(page)
    assert len(answers.asked("doctor")) == 1
    again = type(page)(client, bench)
    qtbot.addWidget(again)
    assert "Ready to train" in words(again)
    assert again.status == "done"
    again.shown()
    assert not client.is_open(again._doctor_request)


def test_problems_are_listed_with_what_failed(qtbot, answers, window):
    answers.result("machine", machine=facts.machine(facts.gpu()))
    bad = facts.checkup(facts.machine(facts.gpu()), ready=False, problems=["The driver is too old. Update it."])
    answers.result("doctor", checkup=bad)
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: "Not ready to train" in words(page))
    assert "The driver is too old. Update it." in words(page)
    assert "rms_norm failed. The largest error was 0.31" in words(page)


def test_without_a_gpu_it_says_what_that_means(qtbot, answers, window):
    answers.result("machine", machine=facts.machine())
    answers.result("doctor", checkup=facts.checkup(facts.machine()))
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "Training works here, slowly" in words(page))


def test_links_between_gpus_are_named(qtbot, answers, window):
    answers.result("machine", machine=facts.pair())
    answers.result("doctor", checkup=facts.checkup(facts.pair()))
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "no direct copies (chipset not supported)" in words(page))
    assert "GPU 1: NVIDIA GeForce RTX 4090" in words(page)


def test_a_failure_is_told_in_place(qtbot, answers, window):
    answers.failure("machine", "NVML broke.", "Restart.")
    answers.failure("doctor", "The check-up stopped.", "Try again.")
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page._check_button.isEnabled()
