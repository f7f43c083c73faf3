"""The live stream of samples, and which of the use is Burnish's own."""

import os
import time

import psutil
import pytest

from burnish_engine.contract.facts.hardware import GpuSample, HardwareSample, HardwareStart
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.serve.messages import Canceled, HardwareReading
from burnish_engine.runs.hardware_file import HardwareFile
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import create_run
from burnish_engine.service import hardware
from burnish_engine.service.hardware import StudioUse

GPU = GpuFacts(index=0, name="RTX")


def test_samples_come_until_the_request_is_canceled(warm_server):
    request = warm_server.send("hardware")
    lines = []
    while len([line for line in lines if isinstance(line, HardwareSample)]) < 2:
        message = warm_server.next()
        assert isinstance(message, HardwareReading)
        assert message.id == request
        lines.append(message.line)
    assert isinstance(lines[0], HardwareStart)
    own = psutil.Process(warm_server.process.pid).memory_info().rss
    assert lines[-1].process_bytes > own / 2
    warm_server.send("cancel", request=request)
    while not isinstance(message, Canceled):
        message = warm_server.next()
    assert message.id == request


def test_processes_of_live_runs_are_ours(burnish_home):
    paths = create_run(Recipe(), burnish_home / "runs" / "one")
    use = StudioUse()
    assert lease.holders() == []
    lease.acquire("cuda-0", paths)
    assert lease.holders() == [(os.getpid(), paths.root)]
    assert os.getpid() in use.pids()
    assert use.owns(os.getpid())
    assert not use.owns(1)


def recording(paths, *, age_s, ours):
    file = HardwareFile(paths.hardware)
    file.write(HardwareSample(t=time.time() - age_s, seconds=1, gpus=[GpuSample(index=0, ours_bytes=ours)]))
    file.close()


def test_in_a_container_live_runs_say_what_they_hold(burnish_home, monkeypatch):
    monkeypatch.setattr(hardware, "in_container", lambda: True)
    paths = create_run(Recipe(), burnish_home / "runs" / "one")
    lease.acquire("cuda-0", paths)
    use = StudioUse()
    use.pids()
    assert use.held_bytes(GPU) is None  # nothing is recorded yet
    recording(paths, age_s=600, ours=1)
    assert use.held_bytes(GPU) is None  # that was long ago
    recording(paths, age_s=0, ours=7)
    assert use.held_bytes(GPU) == 7
    assert use.held_bytes(GPU.model_copy(update={"index": 1})) is None
    lease.release(paths)
    later = StudioUse(clock=time.monotonic)
    later.pids()
    assert later.held_bytes(GPU) is None


@pytest.mark.full
def test_elsewhere_the_driver_s_list_decides(burnish_home, monkeypatch):
    monkeypatch.setattr(hardware, "in_container", lambda: False)
    paths = create_run(Recipe(), burnish_home / "runs" / "one")
    lease.acquire("cuda-0", paths)
    recording(paths, age_s=0, ours=7)
    use = StudioUse()
    use.pids()
    assert use.held_bytes(GPU) is None
