"""The lock that keeps the system awake is held during a job and no longer."""

import os
import stat
import subprocess
import sys
import time

import pytest

from burnish_engine.hardware.host.awake import kept_awake

pytestmark = pytest.mark.skipif(os.name == "nt", reason="systemd")
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


def test_the_lock_is_held_during_the_job_only(locks):
    with kept_awake("Training a run"):
        wait(locks.exists)
        said = locks.read_text()
        assert "sleep:idle" in said
        assert "Training a run" in said
    assert not locks.exists()


def test_a_killed_job_leaves_no_lock(locks):
    job = subprocess.Popen([sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job.stdout.readline()
    wait(locks.exists)
    job.kill()
    job.wait()
    job.stdout.close()
    job.stdin.close()
    wait(lambda: not locks.exists())


def test_a_system_that_has_no_such_lock_or_refuses_it_stops_no_job(locks, monkeypatch, tmp_path):
    (tmp_path / "systemd-inhibit").write_text("#!/bin/sh\nexit 1\n")
    with kept_awake("a"):
        pass
    monkeypatch.setenv("PATH", "")
    with kept_awake("a"):
        pass
