"""The measuring process: it counts right, says why it cannot, and on real GPUs gives rates that can be."""

import importlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pynvml
import pytest
import torch

from burnish_engine.models.device import link_check


def run(*arguments):
    command = [sys.executable, "-m", "burnish_engine.models.device.link_check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_only_the_process_that_measures_sees_all_gpus(monkeypatch):
    """Which module imports it does not matter: a setting that it changed would hold for everything after."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    before = dict(os.environ)
    importlib.reload(link_check)
    assert dict(os.environ) == before


@pytest.fixture
def clock(monkeypatch):
    """Seconds of the clock that measures; it stands unless a test advances it."""
    now = [100.0]
    monkeypatch.setattr(link_check, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_seconds_are_those_of_one_action(clock):
    calls = []

    def work():
        calls.append(1)
        clock[0] += 0.02

    assert link_check.seconds_each(work, lambda: None, lambda: calls.append(0)) == pytest.approx(0.02)
    assert len(calls) > 5
    assert calls.count(0) == 1


def test_work_that_is_only_queued_is_waited_for(clock):
    waiting = []

    def finish():
        clock[0] += 0.01 * len(waiting)
        waiting.clear()

    assert link_check.seconds_each(lambda: waiting.append(1), finish) == pytest.approx(0.01)


@pytest.mark.full
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpus_there_is_nothing_to_measure():
    done = run()
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert (answer["pcie"], answer["links"], answer["all_reduce_gb_s"]) == ([], [], None)


@pytest.mark.full
def test_an_all_reduce_that_fails_says_why(monkeypatch):
    """One process ends with an error at once: no one waits for the other, and its last words are passed on."""
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: True)
    if torch.cuda.device_count() >= 2:
        pytest.skip("here it would succeed")
    rate, why = link_check.measure_all_reduce(2)
    assert rate is None
    assert why.startswith("exit code")


def test_a_torch_without_nccl_says_so(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: True)
    assert "no NCCL" in link_check.measure_all_reduce(2)[1]


@pytest.mark.gpu
def test_real_gpus_have_rates_that_can_be():
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()  # all, also those that this process does not see
    done = run()
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["pcie"]) == count
    assert len(answer["links"]) == count * (count - 1) // 2
    for entry in answer["pcie"]:
        assert 0.5 < entry["to_gpu_gb_s"] < 500
        assert 0.5 < entry["from_gpu_gb_s"] < 500
    for entry in answer["links"]:
        assert entry["intact"]
        assert 0.5 < entry["copy_gb_s"] < 1000
        assert entry["both_ways_gb_s"] > 0.9 * entry["copy_gb_s"]
    if count > 1:
        together = answer["host_copies"]
        assert together["gpus"] == count
        one_way = max(together["to_gpus_gb_s"], together["from_gpus_gb_s"])
        assert 0.5 * count < one_way < 1.1 * sum(entry["to_gpu_gb_s"] for entry in answer["pcie"])
        assert 0.5 * one_way < together["both_ways_gb_s"] < 2.2 * one_way
    if count > 1 and torch.distributed.is_nccl_available():
        assert answer["all_reduce_problem"] == ""
        assert answer["all_reduce_gb_s"] > 0.5
