"""A rank ends with its leader while it still loads its libraries, before any connection between the two."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil
import pytest

from burnish_engine.train.parallel import watched_rank

_LEADER = """
import sys
from pathlib import Path
import torch
from burnish_engine.train.parallel.launch import started_ranks
with started_ranks([torch.device("cpu")] * 2, Path(sys.argv[1]), *sys.argv[2:]):
    pass
"""
_LOADING = """
import os
import threading
from pathlib import Path
folder = Path(__file__).parent
(folder / "found").write_text(f"{os.getpid()}")
(folder / "found").rename(folder / "loading")
threading.Event().wait()  # as if its libraries took forever
"""
_PATIENCE_S = 60.0  # far less than a rank looks for its leader


@contextmanager
def leader_of(folder, *module):
    """The process of a leader whose other rank runs a module; the usual one by default."""
    path = os.pathsep.join([str(folder), *sys.path])
    leader = subprocess.Popen(
        [sys.executable, "-c", _LEADER, str(folder), *module], env={**os.environ, "PYTHONPATH": path}
    )
    ranks = []
    try:
        yield leader, ranks
    finally:
        for process in (leader, *ranks):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        leader.wait()


def until(found):
    """Wait for something to be found; fail after much patience."""
    end = time.monotonic() + _PATIENCE_S
    while not (what := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return what


def is_over(process):
    """Whether a process has ended, collected by whoever has to or not."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def is_rank(process):
    """Whether a process was started as a rank; a copy of the leader that is about to become one is not yet."""
    with suppress(psutil.Error):
        return watched_rank.__name__ in process.cmdline()
    return False


@pytest.mark.full
def test_a_rank_ends_with_a_leader_that_is_killed_while_the_rank_loads_its_libraries(tmp_path):
    (tmp_path / "slow_rank.py").write_text(_LOADING)
    with leader_of(tmp_path, "slow_rank") as (leader, ranks):
        until((tmp_path / "loading").exists)
        ranks.append(psutil.Process(int((tmp_path / "loading").read_text())))
        assert not is_over(ranks[0])
        leader.kill()
        until(lambda: is_over(ranks[0]))


@pytest.mark.full
def test_a_rank_of_a_run_ends_with_a_leader_that_is_killed_at_its_start(tmp_path):
    with leader_of(tmp_path) as (leader, ranks):
        found = until(lambda: [one for one in psutil.Process(leader.pid).children(recursive=True) if is_rank(one)])
        ranks.extend(found)
        leader.kill()
        until(lambda: all(map(is_over, ranks)))


def test_a_module_finds_standard_input_empty_and_ends_as_it_wants(tmp_path):
    (tmp_path / "reading.py").write_text(
        "import sys; sys.exit(7 if __name__ == '__main__' and not sys.stdin.read() else 1)"
    )
    ended = subprocess.Popen(
        [sys.executable, "-m", watched_rank.__name__, "reading"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    with ended:
        assert ended.wait(_PATIENCE_S) == 7


@pytest.mark.full
def test_the_watch_begins_before_anything_large_is_loaded():
    done = "import sys, burnish_engine.train.parallel.watched_rank as _; print('torch' in sys.modules)"
    path = os.pathsep.join(sys.path)
    found = subprocess.run(
        [sys.executable, "-c", done], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"
