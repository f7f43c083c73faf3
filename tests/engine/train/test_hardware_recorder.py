"""The thread that samples beside a run: it records from the start to the end, and nothing it meets reaches the run."""

import logging
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.hardware_log import read_history
from burnish_engine.hardware.sampler import HardwareSampler
from burnish_engine.train import hardware_recorder
from burnish_engine.train.hardware_recorder import recorded_hardware
from burnish_engine.train.lifecycle.progress import Tally

from support.machines.fake_nvml import GIB, FakeNvml
from support.machines.made_up import cpu_machine, gpu_machine

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(hardware_recorder, "EVERY_S", 0.01)


@pytest.fixture
def logged(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("burnish_engine"), "propagate", True)  # the command line turns it off
    return caplog


def wait_for(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def lines_of(paths):
    return len(paths.hardware.read_bytes().splitlines()) if paths.hardware.exists() else 0


def test_samples_are_taken_while_the_run_goes_on_and_once_more_at_its_end(tmp_path):
    paths, asked = RunPaths(tmp_path), []
    nvml = FakeNvml({"used": GIB, "energy": 0}, {"used": 2 * GIB, "energy": 0})
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, count=2)
    tally = Tally()

    class Held:
        def held_bytes(self):
            return GIB // 2

    tally.measure = Held()

    def make(only, own):
        asked.append(list(only))
        return HardwareSampler(only, own=own, machine=machine, nvml=nvml)

    with recorded_hardware(paths, [torch.device("cuda", 1)], tally, make):
        wait_for(lambda: lines_of(paths) > 4)
    history = read_history(paths.hardware)
    assert asked == [[1]]
    assert list(history.gpus) == [1]
    assert set(history.gpus[1].used_bytes.values()) == {2 * GIB}
    assert set(history.gpus[1].ours_bytes.values()) == {GIB // 2}
    assert nvml.open == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "hardware"]


def test_every_gpu_that_shares_the_run_is_recorded_with_what_the_run_holds_of_it(tmp_path):
    paths, tally = RunPaths(tmp_path), Tally()
    rank = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stranger = os.getppid()
    nvml = FakeNvml(
        {"used": 3 * GIB, "energy": 0, "processes": [(os.getpid(), 2 * GIB)]},
        {"used": 5 * GIB, "energy": 0, "processes": [(rank.pid, GIB), (stranger, 4 * GIB)]},
    )
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, count=2)

    def make(only, own):
        return HardwareSampler(only, own=own, machine=machine, nvml=nvml)

    tally.measure = SimpleNamespace(held_bytes=lambda: GIB // 2)
    with recorded_hardware(paths, [torch.device("cuda", 0), torch.device("cuda", 1)], tally, make):
        wait_for(lambda: lines_of(paths) > 4)
    rank.communicate(b"\n")
    history = read_history(paths.hardware)
    assert sorted(history.gpus) == [0, 1]
    assert set(history.gpus[1].ours_bytes.values()) == {GIB}


@pytest.mark.parametrize("where", ["make", "start", "sample", "close"])
def test_whatever_fails_is_reported_and_the_run_goes_on(tmp_path, where, logged):
    paths, seen = RunPaths(tmp_path), []

    class Sampler(HardwareSampler):
        def start(self):
            return self.fail("start") or super().start()

        def sample(self):
            seen.append(1)
            return self.fail("sample") if len(seen) % 2 else super().sample()

        def close(self):
            self.fail("close")

        def fail(self, at):
            if where == at:
                raise RuntimeError("the driver is unwell")

    def make(only, own):
        if where == "make":
            raise RuntimeError("no driver")
        return Sampler(only, own=own, machine=cpu_machine())

    with recorded_hardware(paths, [CPU], Tally(), make):
        if where == "sample":
            wait_for(lambda: lines_of(paths) > 3)  # it continues after a sample that failed
    reported = [record.getMessage() for record in logged.records]
    assert len(reported) == (where != "sample"), reported
    assert all("RuntimeError: " in text for text in reported)


def test_samples_that_fail_one_after_the_other_are_reported_once(tmp_path, logged):
    missed = []

    class Fails(HardwareSampler):
        def sample(self):
            missed.append(1)
            raise OSError("no such counter")

    with recorded_hardware(
        RunPaths(tmp_path), [CPU], Tally(), lambda only, own: Fails(only, own=own, machine=cpu_machine())
    ):
        wait_for(lambda: len(missed) > 25)
    assert [record.getMessage() for record in logged.records] == [
        "The hardware cannot be sampled: OSError: no such counter"
    ]


def test_a_driver_that_hangs_does_not_hold_up_the_end_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_recorder, "_END_S", 0.05)
    release, inside = threading.Event(), threading.Event()

    class Hangs(HardwareSampler):
        def sample(self):
            inside.set()
            release.wait()
            return []

    with recorded_hardware(
        RunPaths(tmp_path), [CPU], Tally(), lambda only, own: Hangs(only, own=own, machine=cpu_machine())
    ):
        assert inside.wait(30)
    assert not release.is_set()
    release.set()


def test_a_run_without_a_device_records_nothing(tmp_path):
    with recorded_hardware(RunPaths(tmp_path), [], Tally()):
        pass
    assert not RunPaths(tmp_path).hardware.exists()
