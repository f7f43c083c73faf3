"""Kills set-ups and updates at random points, and cuts their downloads: whatever is in use works, and the next goes on.

The quick tests kill a few; `long` kills thirty.
"""

import random
import subprocess
import sys
import time

import pytest

from burnish_engine.contract.errors import BurnishError, NoSpaceError
from burnish_engine.install import set_up as set_up_module
from burnish_engine.install.engines import Engines
from burnish_engine.install.files.sources import WebSource
from burnish_engine.install.offer import read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up

from support.engine_mirror import KEY, TARGET, MadeUpRelease, mirror

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")

CHILD = """
import pathlib, sys
from burnish_engine.install.engines import Engines
from burnish_engine.install.files.sources import WebSource
from burnish_engine.install.offer import read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up
from support.engine_mirror import KEY, TARGET
home, source = pathlib.Path(sys.argv[1]), WebSource(sys.argv[2])
release = read_offer(source, KEY).release
print("begun", flush=True)
set_up(Order(release, release.target(TARGET), [source], home), Engines(home), SetUpProgress())
print("done", flush=True)
"""


def version_in_use(engines):
    """The version that the engine in use says it is, after all its parts were loaded; empty: there is none."""
    engine = engines.current
    if engine is None:
        return ""
    code = "import burnish_engine, torch, llama_cpp; print(burnish_engine.VERSION)"
    return subprocess.run(
        [str(engine.python), "-P", "-c", code], capture_output=True, text=True, env={}, check=True
    ).stdout.strip()


def killed(home, address, after_s):
    """Begin a set-up in a process of its own and kill it after a while; returns whether it had ended by itself."""
    command = [sys.executable, "-c", CHILD, str(home), address]
    path = [*sys.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(path)}) as child:
        assert child.stdout.readline() == b"begun\n"
        time.sleep(after_s)
        child.kill()
        return child.stdout.read() == b"done\n"


def set_up_here(engines, served):
    source = WebSource(served.address)
    release = read_offer(source, KEY).release
    return set_up(Order(release, release.target(TARGET), [source], engines.home), engines, SetUpProgress())


def kill_often(home, kills, seed):
    """Kill set-ups and updates; returns how many engines were broken, and the versions that were in use."""
    chosen, engines = random.Random(seed), Engines(home)
    releases = {version: MadeUpRelease(version, padding=1_500_000) for version in ("0.1.0", "0.2.0")}
    seen, wanted, took_s = set(), "0.1.0", 3.0
    with mirror(releases[wanted]) as served:
        for _ in range(kills):
            served.block_pause_s = chosen.choice((0.0, 0.01, 0.04))
            ended = killed(home, served.address, chosen.uniform(0.0, took_s))
            found = version_in_use(engines)
            assert found in ({"", "0.1.0"} if wanted == "0.1.0" else {"0.1.0", "0.2.0"})
            seen.add(found)
            took_s = max(took_s * (0.8 if ended else 1.1), 0.5)
            if found == wanted or chosen.random() < 0.3:  # go on to the end, then to the other version
                set_up_here(engines, served)
                assert version_in_use(engines) == wanted
                if wanted == "0.1.0":
                    wanted = "0.2.0"
                    served.serve(releases[wanted])
                else:
                    engines.roll_back()
                    assert version_in_use(engines) == "0.1.0"
        served.block_pause_s = 0.0
        set_up_here(engines, served)
    assert version_in_use(engines) == wanted
    assert len(list((home / "engines").iterdir())) <= 2
    return seen


def test_a_few_kills_break_no_engine(tmp_path):
    kill_often(tmp_path, 3, seed=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thirty_kills_break_no_engine(tmp_path):
    assert kill_often(tmp_path, 30, seed=2) >= {"0.1.0"}


CUTS = ("wrong", "cut", "page", "missing", "login")


@pytest.mark.full
def test_ten_cut_downloads_break_no_engine(tmp_path):
    """Five while the first engine is set up, five while an update is: each of them fails, and the last try works."""
    engines = Engines(tmp_path)
    release = MadeUpRelease("0.1.0", padding=100_000)
    with mirror(release) as served:
        for before, version in (("", "0.1.0"), ("0.1.0", "0.2.0")):
            served.serve(MadeUpRelease(version, padding=100_000))
            for cut in CUTS:
                served.faults[f"/files/{release.large}"] = [cut] * 9
                with pytest.raises(BurnishError):
                    set_up_here(engines, served)
                assert version_in_use(engines) == before
            served.faults.clear()
            set_up_here(engines, served)
            assert version_in_use(engines) == version


@pytest.fixture
def small_disk(tmp_path):
    """A file system with 3 MB of room."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
def test_a_disk_that_fills_up_meanwhile_breaks_no_engine(tmp_path, small_disk, monkeypatch):
    """The room is there when it begins, and another program takes it."""
    engines = Engines(tmp_path / "home")
    with mirror(MadeUpRelease("0.1.0")) as served:
        set_up_here(engines, served)
        served.serve(MadeUpRelease("0.2.0", padding=4_000_000))
        source = WebSource(served.address)
        release = read_offer(source, KEY).release
        monkeypatch.setattr(set_up_module, "check_space", lambda _needs: None)
        with pytest.raises(NoSpaceError, match="full"):
            set_up(Order(release, release.target(TARGET), [source], small_disk), engines, SetUpProgress())
        assert version_in_use(engines) == "0.1.0"
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        set_up(Order(release, release.target(TARGET), [source], small_disk), engines, SetUpProgress())
        assert version_in_use(engines) == "0.2.0"
