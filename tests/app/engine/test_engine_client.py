"""The client against a stand-in engine: answers, streams, cancels, and servers that die."""

import sys

import pytest
from PySide6.QtCore import QObject
from shiboken6 import isValid

from burnish_app.engine.engine_client import EngineClient
from burnish_engine.contract.serve.model_requests import ChatRequest, MachineRequest
from burnish_engine.contract.serve.run_requests import RunsRequest

RESULT = {"type": "result", "detail": "well"}


@pytest.fixture
def ready(qtbot, client):
    client.start()
    qtbot.waitUntil(lambda: client.state == "ready")
    return client


def test_a_request_sent_before_the_server_is_up_is_answered(qtbot, client, answers):
    answers.set("machine", RESULT)
    got = []
    client.send(MachineRequest, on_result=got.append)
    client.start()
    qtbot.waitUntil(lambda: len(got) > 0)
    assert got[0].detail == "well"


def test_progress_and_pieces_come_in_order_before_the_result(qtbot, ready, answers):
    answers.set(
        "chat",
        {"type": "progress", "what": "Loading", "done": 1, "total": 4},
        {"print": "a library talks here"},
        {"type": "piece", "text": "Hel"},
        {"type": "piece", "text": "lo"},
        RESULT,
    )
    seen = []
    ready.send(
        ChatRequest,
        target="embedded",
        messages=[{"role": "user", "content": "Hi"}],
        on_progress=lambda progress: seen.append((progress.done, progress.total)),
        on_piece=seen.append,
        on_result=lambda result: seen.append(result.detail),
    )
    qtbot.waitUntil(lambda: len(seen) == 4)
    assert seen == [(1, 4), "Hel", "lo", "well"]


def test_a_failure_reaches_the_failure_callback_only(qtbot, ready, answers):
    answers.failure("machine", "The driver does not answer.", "Restart.", 12)
    results, failures = [], []
    ready.send(MachineRequest, on_result=results.append, on_failure=failures.append)
    qtbot.waitUntil(lambda: len(failures) > 0)
    assert (failures[0].what, failures[0].remedy, failures[0].exit_code) == (
        "The driver does not answer.",
        "Restart.",
        12,
    )
    assert not results


def test_cancel_ends_a_request_that_works(qtbot, ready, answers):
    answers.set("machine", {"hold": True})
    ended, results = [], []
    name = ready.send(MachineRequest, on_result=results.append, on_canceled=lambda: ended.append(True))
    ready.cancel(name)
    qtbot.waitUntil(lambda: len(ended) > 0)
    assert not results
    assert not ready.is_open(name)


def test_a_request_canceled_before_it_was_sent_never_reaches_the_server(qtbot, client, answers):
    ended, got = [], []
    client.cancel(client.send(MachineRequest, on_canceled=lambda: ended.append(True)))
    assert ended
    client.send(RunsRequest, on_result=got.append)
    client.start()
    qtbot.waitUntil(lambda: len(got) > 0)
    assert not answers.asked("machine")


def test_no_callback_after_its_owner_is_gone(qtbot, ready, answers):
    owner, got, later = QObject(), [], []
    ready.send(MachineRequest, owner=owner, on_result=got.append)
    owner.deleteLater()
    qtbot.waitUntil(lambda: not isValid(owner))
    ready.send(RunsRequest, on_result=later.append)
    qtbot.waitUntil(lambda: len(later) > 0)
    assert not got


@pytest.mark.full
def test_a_server_that_dies_is_started_again_and_its_requests_fail_in_words(qtbot, ready, answers):
    answers.set("machine", {"exit": 9})
    first, states, failures, got = ready.pid, [], [], []
    ready.state_changed.connect(states.append)
    ready.send(MachineRequest, on_failure=failures.append)
    qtbot.waitUntil(lambda: len(failures) > 0)
    ready.send(RunsRequest, on_result=got.append)
    qtbot.waitUntil(lambda: len(got) > 0)
    assert "stopped unexpectedly" in failures[0].what
    assert failures[0].remedy
    assert states == ["restarting", "ready"]
    assert ready.pid != first


@pytest.mark.full
def test_a_server_that_never_starts_is_called_down_and_still_tried(qtbot, client, answers):
    answers.set("at_start", {"exit": 1})
    client.start()
    qtbot.waitUntil(lambda: client.state == "down")
    answers.set("at_start")
    qtbot.waitUntil(lambda: client.state == "ready")


def test_a_program_that_is_not_there_does_not_raise(qtbot, qapp):
    client = EngineClient((f"{sys.executable}-that-is-not-there",))
    client.start()
    qtbot.waitUntil(lambda: client.state == "restarting")
    client.close()


def test_close_ends_the_server(qtbot, ready):
    import psutil

    process = psutil.Process(ready.pid)
    ready.close()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
