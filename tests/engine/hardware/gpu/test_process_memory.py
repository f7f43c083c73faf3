# ruff: noqa: N802  the functions of NVML and PDH have these names
"""What a process holds of a GPU: from the driver, and from Windows' counters, whose library is made up here."""

import ctypes
import os
from types import SimpleNamespace

import pytest

from burnish_engine.hardware.gpu import process_memory
from burnish_engine.hardware.gpu.process_memory import (
    ProcessMemory,
    WindowsUsage,
    _CounterItem,
    _CounterValue,
    read_windows,
)

MIB = 2**20


class Nvml:
    """A driver with one GPU."""

    def __init__(self, *, used=(0,), processes=None, known=True):
        self._used, self._processes, self._known = list(used), processes, known

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if not self._known:
            raise ValueError(uuid)
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=self._used.pop(0) if len(self._used) > 1 else self._used[0])

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        if self._processes is None:
            raise RuntimeError("not supported")
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self._processes.items()]


def test_the_drivers_figure_for_this_process_counts():
    others = {os.getpid() + 1: 5 * MIB, os.getpid(): 700 * MIB}
    assert ProcessMemory("GPU-1", Nvml(used=[1, 2], processes=others)).read() == 700 * MIB


@pytest.mark.parametrize("processes", [None, {}, {os.getpid(): None}, {os.getpid() + 1: 9}])
def test_without_one_it_is_what_was_taken_since(processes):
    driver = Nvml(used=[300 * MIB, 1000 * MIB, 200 * MIB], processes=processes)
    memory = ProcessMemory("GPU-1", driver)
    assert memory.read() == 700 * MIB
    assert memory.read() == 0, "another process ended"


def test_no_driver_no_figure():
    assert ProcessMemory("GPU-1", Nvml(known=False)).read() is None
    assert ProcessMemory("GPU-no-such-card").read() is None


class Pdh:
    """pdh.dll with instances of both counters: {name: (dedicated, shared)}; a number fails at that call."""

    def __init__(self, instances, *, fails="", invalid=()):
        self._instances, self._fails, self._invalid = instances, fails, invalid
        self._counters, self.closed, self._kept = {}, 0, []

    def PdhOpenQueryW(self, source, user, query):
        query._obj.value = 7
        return 1 if self._fails == "open" else 0

    def PdhAddEnglishCounterW(self, query, path, user, counter):
        assert path.startswith("\\GPU Process Memory(*)\\")
        if self._fails == "add" or (self._fails == "add shared" and path.endswith("Shared Usage")):
            return 0xC0000BB8  # no such object
        counter._obj.value = len(self._counters) + 1
        self._counters[counter._obj.value] = 0 if path.endswith("Dedicated Usage") else 1
        return 0

    def PdhCollectQueryData(self, query):
        return 0x800007D5 if self._fails == "collect" else 0

    def PdhGetFormattedCounterArrayW(self, counter, kind, size, count, buffer):
        assert kind == 0x400
        needed = ctypes.sizeof(_CounterItem) * len(self._instances)
        if buffer is None or size._obj.value < needed:
            size._obj.value, count._obj.value = needed, len(self._instances)
            return -2147481646  # PDH_MORE_DATA as a signed number
        made = [
            _CounterItem(
                name, _CounterValue(0xC0000BC6 if name in self._invalid else 1, figures[self._counters[counter.value]])
            )
            for name, figures in self._instances.items()
        ]
        array = (_CounterItem * len(made))(*made)
        self._kept.append(array)
        ctypes.memmove(buffer, array, needed)
        return 0

    def PdhCloseQuery(self, query):
        self.closed += 1
        return 0


INSTANCES = {
    "pid_12_luid_0x00000000_0x0000C0A1_phys_0": (3_000_000_000, 100_000_000),
    "pid_12_luid_0x00000000_0x0000C0B7_phys_0": (5, 7),
    "pid_123_luid_0x00000000_0x0000C0A1_phys_0": (9, 9),
    "pid_4_luid_0x00000000_0x0000C0A1_phys_0": (2, 2),
}


def test_the_counters_of_all_cards_are_summed_for_one_process():
    library = Pdh(INSTANCES)
    assert read_windows(12, library) == WindowsUsage(dedicated=3_000_000_005, shared=100_000_007)
    assert library.closed == 1


def test_an_instance_without_valid_data_does_not_count():
    name = "pid_12_luid_0x00000000_0x0000C0B7_phys_0"
    assert read_windows(12, Pdh(INSTANCES, invalid={name})).shared == 100_000_000


def test_a_process_without_instances_is_unknown():
    assert read_windows(77, Pdh(INSTANCES)) == WindowsUsage(dedicated=None, shared=None)


@pytest.mark.parametrize("where", ["open", "add", "collect"])
def test_counters_that_do_not_answer_are_no_figure(where):
    library = Pdh(INSTANCES, fails=where)
    assert read_windows(12, library) is None
    assert library.closed == (0 if where == "open" else 1)


def test_one_counter_alone_is_used():
    assert read_windows(12, Pdh(INSTANCES, fails="add shared")) == WindowsUsage(dedicated=3_000_000_005, shared=None)


def test_windows_own_figure_comes_first(monkeypatch):
    monkeypatch.setattr(process_memory.sys, "platform", "win32")
    monkeypatch.setattr(process_memory, "_pdh", lambda: Pdh({f"pid_{os.getpid()}_luid_0": (11, 0)}))
    assert ProcessMemory("GPU-1", Nvml(used=[1], processes={os.getpid(): 700})).read() == 11


@pytest.mark.skipif(os.name != "nt", reason="needs Windows' performance counters")
def test_on_windows_the_counters_answer_without_an_error():
    assert read_windows() is None or isinstance(read_windows(), WindowsUsage)


def test_elsewhere_there_are_no_such_counters():
    if os.name != "nt":
        assert read_windows() is None
