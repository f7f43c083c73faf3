"""Lines, jobs and the serving loop: whatever comes in, whole messages go out."""

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import FailedError, Job
from burnish_engine.channel.log import log, log_file
from burnish_engine.channel.server import LineServer, failure
from burnish_engine.channel.stdio import read_lines
from burnish_engine.contract.errors import DataError, SetupError, StoppedError
from burnish_engine.contract.serve.data_requests import InspectRequest
from burnish_engine.contract.serve.messages import Failure, Piece, Progress, Result
from burnish_engine.contract.serve.model_requests import MachineRequest
from burnish_engine.contract.serve.protocol import parse_message

from support.app.serve import LONG_S, Server, wait_for

# A worker whose method prints, runs a child that prints, reads standard input, and answers.
NOISY = """
import os, subprocess, sys, time
from burnish_engine.channel.worker import work
from burnish_engine.contract.serve.messages import Result

def machine(request, job):
    print("a library's print", flush=True)
    os.write(1, b"a C library's print\\n")
    subprocess.run([sys.executable, "-c", "import sys; print('a child'); sys.exit(len(sys.stdin.read()))"], check=True)
    return Result(id=request.id, detail="read: " + repr(sys.stdin.readline()))

def free(request, job):
    os.abort()

def runs(request, job):
    job.progress("Working", 0, 0)
    while not job.canceled:
        time.sleep(0.01)
    job.check()

def doctor(request, job):
    time.sleep(600)

def inspect(request, job):  # does not end in the first life of the process
    first = not os.path.exists("inspected")
    open("inspected", "w").close()
    time.sleep(600 if first else 0)
    return Result(id=request.id, detail="inspected")

work({"inspect": inspect, "machine": machine, "free": free, "runs": runs, "doctor": doctor})
"""


def through_pipe(blocks, longest):
    """What `read_lines` makes of blocks that arrive one after the other."""
    source, target = os.pipe()

    def write():
        for block in blocks:
            os.write(target, block)
        os.close(target)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return list(read_lines(source, longest))
    finally:
        writer.join()
        os.close(source)


@pytest.mark.full
@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"x", b"\n")), max_size=12))
def test_lines_are_cut_where_they_end_and_long_ones_are_left_out(blocks):
    lines = b"".join(blocks).split(b"\n")
    if not lines[-1]:
        lines.pop()
    assert through_pipe(blocks, 20) == [line if len(line) <= 20 else None for line in lines]


@pytest.mark.full
def test_nothing_but_the_protocol_reaches_standard_output():
    with Server("-c", NOISY) as server:
        answers = [server.result("machine") for _ in range(3)]
        assert [answer.detail for answer in answers] == ["read: ''"] * 3
        assert server.end() == 0
        for said in (b"a library's print", b"a C library's print", b"a child"):
            assert server.errors.count(said) == 3


@pytest.mark.full
def test_a_method_that_a_worker_does_not_know_and_ids_in_use():
    with Server("-c", NOISY) as server:
        assert "does not answer 'fetch'" in server.failure("fetch", name="a/b").what
        first = server.send("runs")
        assert isinstance(server.next(), Progress)
        server.send("runs", id=first)
        refused = server.next()
        assert (refused.type, refused.id) == ("failure", "")
        assert "still open" in refused.what
        assert server.result("cancel", request="nothing").detail
        server.send("cancel", request=first)
        assert server.until_end(first)[-1].type == "canceled"


def test_canceling_twice_is_canceling_once():
    told = []
    job = Job("1", lambda _message: None)
    job.on_cancel(lambda: told.append(1))
    job.cancel()
    job.cancel()
    assert told == [1]


@pytest.mark.full
def test_too_many_requests_are_refused():
    with Server("-c", NOISY) as server:
        for _ in range(64):
            server.send("runs")
        assert "64 requests are open" in server.failure("runs").what
        assert server.end() == 0  # and all of them end with the client


class Sink:
    def __init__(self):
        self.messages = []

    def __call__(self, message):
        self.messages.append(message)


def test_progress_is_rare_but_its_end_is_told():
    sink = Sink()
    job = Job("1", sink)
    for done in range(1, 1001):
        job.progress("Reading", done, 1000)
    assert (sink.messages[0].done, sink.messages[-1].done) == (1, 1000)
    assert len(sink.messages) < 20
    job.cancel()
    with pytest.raises(StoppedError):
        job.progress("Reading", 1, 1000)
    with pytest.raises(StoppedError):
        job.piece("x")


def test_cancel_reaches_who_waits_for_it_once():
    told = []
    job = Job("1", Sink())
    job.on_cancel(lambda: told.append("early"))
    job.cancel()
    job.on_cancel(lambda: told.append("late"))
    job.on_cancel(None)
    job.cancel()
    assert told == ["early", "late"]


def test_failures_are_told_as_what_they_are(burnish_home):
    assert failure("1", DataError("Bad.", "Mend it.")).model_dump(exclude={"type"}) == {
        "id": "1", "what": "Bad.", "remedy": "Mend it.", "exit_code": 11,
    }  # fmt: skip
    assert failure("1", MemoryError()).exit_code == 10
    full = failure("1", OSError(28, "No space left on device", "/data/x"))
    assert (full.exit_code, "/data/x" in full.what) == (15, True)
    reported = Failure(id="other", what="W", exit_code=12)
    assert failure("1", FailedError(reported)) == reported.model_copy(update={"id": "1"})
    assert not log_file().exists()
    try:
        {}["missing"]
    except KeyError as error:
        bug = failure("1", error)
    assert (bug.exit_code, "KeyError" in bug.what) == (1, True)
    assert "Traceback" in log_file().read_text(encoding="utf-8")


def test_the_log_is_bounded_and_keeps_the_newest(burnish_home):
    for number in range(40):
        log(f"entry {number} " + "x" * 50_000)
    text = log_file().read_text(encoding="utf-8")
    assert len(text) < 1_100_000
    assert "entry 39 " in text
    assert "entry 0 " not in text


def test_text_that_is_no_unicode_still_goes_out():
    source, target = os.pipe()
    LineServer(target).send(Piece(id="1", text="a name\udce9"))
    os.close(target)
    with os.fdopen(source, "rb") as stream:
        assert parse_message(stream.read()).text == "a name?"


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A worker made of the noisy script, asked through `Child`."""
    (tmp_path / "noisy_worker.py").write_text(NOISY, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = Child("noisy_worker", "noisy process")
    yield made
    made.close()


def request(method="machine", request_id="1"):
    from burnish_engine.contract.serve.protocol import parse_request

    return parse_request(f'{{"id": "{request_id}", "method": "{method}"}}')


def test_a_reported_failure_is_an_error_with_its_words():
    assert str(FailedError(Failure(id="1", what="The disk is full.", exit_code=15))) == "The disk is full."


def test_a_worker_that_dies_is_told_and_started_again(child):
    others, sink = set(psutil.Process().children()), Sink()
    assert isinstance(child.ask(request(), Job("1", sink), about="x"), Result)
    with pytest.raises(SetupError, match=r"worked on a bad file: .*(SIGABRT|exit)"):
        child.ask(request("free"), Job("1", sink), about="a bad file")
    assert isinstance(child.ask(request(), Job("1", sink), about="x"), Result)
    workers = set(psutil.Process().children()) - others
    assert child.end_if_idle()
    assert not psutil.wait_procs(workers, timeout=LONG_S)[1], "its memory is free"
    assert isinstance(child.ask(MachineRequest(id="2"), Job("2", sink), about="x"), Result)


@pytest.mark.full
def test_canceling_reaches_the_worker(child):
    sink = Sink()
    job = Job("1", sink)
    threading.Thread(target=lambda: (wait_for(lambda: sink.messages), job.cancel())).start()
    with pytest.raises(StoppedError):
        child.ask(request("runs"), job, about="x")
    assert [message.what for message in sink.messages] == ["Working"]
    assert isinstance(child.ask(request(), Job("1", sink), about="x"), Result)


@pytest.mark.full
def test_what_else_a_worker_did_that_had_to_be_ended_is_asked_again(child, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("burnish_engine.channel.child.CANCEL_GRACE_S", 0.1)
    answers = []
    other = InspectRequest(id="2", recipe="")
    thread = threading.Thread(target=lambda: answers.append(child.ask(other, Job("2", Sink()), about="x")))
    thread.start()
    wait_for((tmp_path / "inspected").exists)
    job = Job("1", Sink())
    threading.Timer(0.2, job.cancel).start()
    with pytest.raises(StoppedError):
        child.ask(request("doctor"), job, about="x")
    thread.join(30)
    assert [answer.detail for answer in answers] == ["inspected"]


@pytest.mark.timeout(300)  # it does not end by itself
def test_a_worker_that_does_not_listen_is_ended(child, monkeypatch):
    monkeypatch.setattr("burnish_engine.channel.child.CANCEL_GRACE_S", 0.1)
    job = Job("1", Sink())
    threading.Timer(0.2, job.cancel).start()
    with pytest.raises(StoppedError):
        child.ask(request("doctor"), job, about="x")
    assert isinstance(child.ask(request(), Job("1", Sink()), about="x"), Result)


def test_end_if_idle_spares_a_busy_worker(child):
    job = Job("1", Sink())
    outcome = []

    def ask():
        try:
            child.ask(request("runs"), job, about="x")
        except StoppedError:
            outcome.append("canceled")

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    child.end_if_idle()
    job.cancel()
    thread.join(timeout=LONG_S)
    assert outcome == ["canceled"]


@pytest.mark.full
def test_workers_end_with_whoever_started_them(tmp_path):
    """Also when it is killed and cannot say goodbye."""
    (tmp_path / "noisy_worker.py").write_text(NOISY, encoding="utf-8")
    code = (
        "import time\nfrom burnish_engine.channel.child import Child, _Process\n"
        "p = _Process('noisy_worker')\nprint(p._child.pid, flush=True)\ntime.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    psutil.wait_procs([worker], timeout=LONG_S)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
