"""Threads: physical cores, but no more than affinity and the container leave to the process."""

import os

import psutil
import pytest

from burnish_engine.hardware.host import cpu
from burnish_engine.hardware.host.cpu import usable_cores


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 8 cores and 16 CPUs: (physical, affinity, cpu.max) replace what it says."""

    def make(physical=8, affinity=16, quota=None, openmp=None):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if openmp is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", openmp)
        monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else physical)
        if affinity is None:
            monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        else:
            monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
        file = tmp_path / "cpu.max"
        if quota is not None:
            file.write_text(quota)
        monkeypatch.setattr(cpu, "_QUOTA", file)

    return make


@pytest.mark.parametrize(
    ("says", "cores"),
    [
        ({}, 8),
        ({"physical": None}, 16),
        ({"affinity": 3}, 3),
        ({"affinity": None}, 8),
        ({"quota": "max 100000\n"}, 8),
        ({"quota": "200000 100000\n"}, 2),
        ({"quota": "150000 100000\n"}, 1),
        ({"quota": "50000 100000\n"}, 1),
        ({"openmp": "3"}, 3),
        ({"openmp": "4,2"}, 4),
        ({"openmp": "64"}, 8),
        ({"openmp": "0"}, 8),
        ({"openmp": "many"}, 8),
        ({"quota": "3200000 100000\n"}, 8),
        ({"quota": "200000 100000\n", "affinity": 1}, 1),
        ({"quota": ""}, 8),
        ({"quota": "max"}, 8),
        ({"quota": "1 0"}, 8),
        ({"quota": "a b"}, 8),
    ],
)
def test_the_smallest_limit_counts(machine, says, cores):
    machine(**says)
    assert usable_cores() == cores


def test_a_system_that_says_nothing_has_one(machine, monkeypatch):
    machine(affinity=None)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
    assert usable_cores() == 1


def test_this_machine():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
