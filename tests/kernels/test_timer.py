"""How the timer takes off what it adds itself, on a make-believe GPU whose clock the actions turn."""

import pytest
import torch

from burnish_kernels import timer as timer_module
from burnish_kernels.timer import CudaTimer

FILLER_MS, GRAPH_START_MS, EVENT_MS = 0.09, 0.006, 0.002


class Gpu:
    """Time passes where actions say so; replaying a graph takes a start and what it captured."""

    def __init__(self):
        self.now = 0.0

    def work(self, ms):
        self.now += ms

    def capture(self, run):
        before = self.now
        run()
        held, self.now = self.now - before, before
        return lambda: self.work(GRAPH_START_MS + held)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()

    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self):
            gpu.work(EVENT_MS / 2)
            self.at = gpu.now

        def elapsed_time(self, other):
            return other.at - self.at

    class Filler:
        def sum(self):
            gpu.work(FILLER_MS)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: None)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: Filler())
    monkeypatch.setattr(timer_module, "_capture", gpu.capture)
    return gpu


@pytest.mark.parametrize("ms", [0.004, 0.05, 0.7, 30.0])
def test_a_graph_start_and_the_filler_are_not_charged_to_the_kernel(gpu, ms):
    assert CudaTimer()(lambda: gpu.work(ms)) == pytest.approx(ms, rel=1e-6)


def test_what_is_not_captured_is_timed_alone(gpu):
    assert CudaTimer()(lambda: gpu.work(0.5), captured=False) == pytest.approx(0.5 + EVENT_MS / 2)


def test_long_actions_are_repeated_less(gpu):
    runs = []

    def run(ms):
        runs.append(ms)
        gpu.work(ms)

    timer = CudaTimer()
    timer(lambda: run(1000.0), captured=False)
    assert len(runs) == 2 + 3 + 7
    runs.clear()
    timer(lambda: run(0.01), captured=False)
    assert len(runs) == 2 + 3 + 101


def test_an_action_of_no_time_is_no_division_by_zero(gpu):
    assert CudaTimer()(lambda: None) > 0
