"""The lock that keeps the system awake is held during a job and no longer."""

import ctypes
import os
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from burnish_engine.hardware.host import awake
from burnish_engine.hardware.host.awake import kept_awake

SYSTEMD = pytest.mark.skipif(os.name == "nt", reason="systemd")
JOB = "from burnish_engine.hardware.host.awake import kept_awake\nwith kept_awake('a'): print(flush=True); input()"


@pytest.fixture
def locks(tmp_path, monkeypatch):
    """Put a stand-in for systemd-inhibit on the path; the file that says with what it holds, while it holds."""
    held = tmp_path / "held"
    program = tmp_path / "systemd-inhibit"
    program.write_text(f'#!/bin/sh\necho "$@" > "{held}.new"\nmv "{held}.new" "{held}"\n/bin/cat\nrm "{held}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return held


def wait(until):
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


@SYSTEMD
def test_the_lock_is_held_during_the_job_only(locks):
    with kept_awake("Training a run"):
        wait(locks.exists)
        said = locks.read_text()
        assert "sleep:idle" in said
        assert "Training a run" in said
    assert not locks.exists()


@pytest.mark.full
@SYSTEMD
def test_a_killed_job_leaves_no_lock(locks):
    job = subprocess.Popen([sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job.stdout.readline()
    wait(locks.exists)
    job.kill()
    job.wait()
    job.stdout.close()
    job.stdin.close()
    wait(lambda: not locks.exists())


@SYSTEMD
def test_a_system_that_has_no_such_lock_or_refuses_it_stops_no_job(locks, monkeypatch, tmp_path):
    (tmp_path / "systemd-inhibit").write_text("#!/bin/sh\nexit 1\n")
    with kept_awake("a"):
        pass
    monkeypatch.setenv("PATH", "")
    with kept_awake("a"):
        pass


def test_windows_is_asked_to_stay_awake_and_then_no_longer(monkeypatch):
    asked = []

    def set_state(state):
        asked.append(state)

    kernel = SimpleNamespace(SetThreadExecutionState=set_state)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(awake, "os", SimpleNamespace(name="nt"))
    with kept_awake("a"):
        assert asked == [0x80000001]  # ES_CONTINUOUS | ES_SYSTEM_REQUIRED (winbase.h)
    assert asked == [0x80000001, 0x80000000]
