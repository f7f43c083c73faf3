"""Benchmarks are listed while their process lives, whoever started them, and can be ended."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import benches_dir
from burnish_engine.runs.jobs import benches
from burnish_engine.runs.jobs.benches import announced, list_benches, stop_bench

STEP = [
    "bench", "step", "--shape", "smollm2-135m", "--device", "cpu", "--layers", "1", "--tokens", "64", "--precision",
    "fp32",
]  # fmt: skip
"""Arguments that time steps without a GPU."""
PATIENCE_S = 120


@pytest.fixture
def running():
    """Start `burnish bench step` in a process of its own, as a terminal does, with more steps than a test waits for."""
    started = []

    def start(*more):
        command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", *STEP, "--steps", "100000", *more]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.mark.full
def test_a_benchmark_says_what_it_is_and_how_far_and_vanishes_when_it_is_killed(running):
    process = running()
    bench = until(lambda: next((one for one in list_benches() if one.share), None))
    assert (bench.kind, bench.about) == ("step", "smollm2-135m")
    assert psutil.Process(bench.pid).create_time() <= bench.started + 1
    until(lambda: list_benches()[0].share > bench.share)
    process.kill()  # it has no chance to say so
    process.wait()
    assert list(benches_dir().glob("*.json"))
    assert list_benches() == []
    assert not list(benches_dir().glob("*.json"))


@pytest.mark.full
def test_a_benchmark_is_ended_with_what_it_started(running):
    process = running()
    bench = until(list_benches)[0]
    stop_bench(bench.pid)
    process.wait(timeout=PATIENCE_S)
    assert list_benches() == []
    with pytest.raises(UsageError):
        stop_bench(bench.pid)


def test_no_other_process_is_ended():
    with pytest.raises(UsageError):
        stop_bench(os.getpid())


def test_its_share_grows_and_its_file_goes_with_it(monkeypatch):
    monkeypatch.setattr(benches, "_WRITE_S", 0.0)
    with announced("gguf", "a.gguf, b.gguf") as progress:
        assert [one.share for one in list_benches()] == [None]
        progress(0.25)
        assert [(one.kind, one.about, one.share) for one in list_benches()] == [("gguf", "a.gguf, b.gguf", 0.25)]
    assert list_benches() == []


def test_a_failure_takes_the_file_along():
    with pytest.raises(ZeroDivisionError), announced("kernels", ""):
        raise ZeroDivisionError
    assert not list(benches_dir().glob("*.json"))


def test_where_nothing_can_be_written_it_goes_on_unannounced():
    benches_dir().parent.mkdir(parents=True, exist_ok=True)
    benches_dir().write_text("")
    with announced("step", "x") as progress:
        progress(0.5)
        assert list_benches() == []


@pytest.mark.parametrize("change", [{"process_created": 1.0}, {"pid": 2**22 + 1}, {"share": 7.0}, {"kind": "games"}])
def test_a_file_of_anything_but_a_living_benchmark_does_not_count(change):
    with announced("step", "x"):
        file = benches_dir() / f"{os.getpid()}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        assert list_benches() == []
        assert not file.exists()
