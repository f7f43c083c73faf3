import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from threading import Event

import pytest

from burnish_engine.cli.machine.bundle import bundle
from burnish_engine.contract.errors import ExitCode, NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.install import bundle as module
from burnish_engine.install.bundle import bundle_content, write_bundle
from burnish_engine.install.engines import Engines
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.sources import FolderSource, WebSource, open_source
from burnish_engine.install.offer import read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up

from support.engine_mirror import KEY, TARGET, MadeUpRelease, mirror


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")
def test_a_bundle_sets_up_a_pc_without_a_network(tmp_path):
    release, path = MadeUpRelease(), tmp_path / "bundle.zip"
    (tmp_path / "burnish.deb").write_text("the window")
    with mirror(release) as served:
        source = WebSource(served.address)
        offer = read_offer(source, KEY)
        write_bundle(offer, bundle_content(offer, [TARGET], [tmp_path / "burnish.deb"]), [source], path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"bundle.zip", "burnish.deb"}
    with zipfile.ZipFile(path) as archive:
        assert archive.read("burnish.deb") == b"the window"
        assert TARGET in archive.read("READ ME.txt").decode()
    source = open_source(str(path))
    offer = read_offer(source, KEY)
    order = Order(offer.release, offer.release.target(TARGET), [source], tmp_path / "other PC")
    assert order.missing_bytes() == 0
    set_up(order, Engines(tmp_path / "other PC"), SetUpProgress())
    assert Engines(tmp_path / "other PC").current.release.version == "0.1.0"


def test_a_bundle_of_what_is_not_there_is_refused(tmp_path):
    source = FolderSource(MadeUpRelease().write(tmp_path / "release"))
    offer = read_offer(source, KEY)
    with pytest.raises(SetupError, match="cu126"):
        bundle_content(offer, ["linux-x86_64-cu126"])
    with pytest.raises(SetupError, match="window"):
        bundle_content(offer, [TARGET], [tmp_path / "window.deb"])


@pytest.fixture
def made(tmp_path):
    """A source, its offer, and the content of a bundle."""
    source = FolderSource(MadeUpRelease().write(tmp_path / "release"))
    offer = read_offer(source, KEY)
    return source, offer, bundle_content(offer, [TARGET])


def test_what_was_fetched_stays_where_a_bundle_fails(tmp_path, made, monkeypatch):
    source, offer, content = made
    path = tmp_path / "bundle.zip"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(NoSpaceError):
        patch.setattr(module, "replace_with_retry", full)
        write_bundle(offer, content, [source], path)
    fetched = {file.name for file in (tmp_path / "bundle.zip.files").iterdir()}
    assert fetched == {file.name for file in content.files}
    assert not path.exists()
    write_bundle(offer, content, [], path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"bundle.zip", "release"}


def test_a_bundle_that_cannot_be_written_is_refused_before_anything_is_fetched(tmp_path, made, monkeypatch):
    source, offer, content = made
    for path in (tmp_path, Path("/"), tmp_path / "release" / "engine.json" / "bundle.zip"):
        with pytest.raises((UsageError, NoSpaceError)):
            write_bundle(offer, content, [source], path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: type(usage)(usage.total, usage.used, 1000))
    with pytest.raises(NoSpaceError, match="free"):
        write_bundle(offer, content, [source], tmp_path / "bundle.zip")
    assert {entry.name for entry in tmp_path.iterdir()} == {"release"}


def test_a_bundle_can_be_stopped(tmp_path, made):
    source, offer, content = made
    stop = Event()
    stop.set()
    with pytest.raises(StoppedError):
        write_bundle(offer, content, [source], tmp_path / "bundle.zip", Meter(1, stop))


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="a console's Ctrl-C cannot be sent to one process")
def test_ctrl_c_ends_the_command_cleanly(tmp_path):
    command = [sys.executable, "-m", "burnish_engine.cli.main", "bundle", str(tmp_path / "bundle.zip")]
    with mirror(MadeUpRelease(padding=2_000_000)) as served:
        served.block_pause_s = 0.5
        env = os.environ | {"BURNISH_RELEASE": served.address, "BURNISH_RELEASE_KEY": KEY.text().splitlines()[1]}
        env |= {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            while not any(path.startswith("/files/") for path, _ in served.asked):
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=60)[0].decode()
    assert child.returncode == ExitCode.STOPPED, said
    assert "Traceback" not in said
    assert not (tmp_path / "bundle.zip").exists()


def test_two_files_of_one_name_do_not_go_along(tmp_path, made):
    (tmp_path / "engine.json").touch()
    with pytest.raises(SetupError, match="called engine"):
        bundle_content(made[1], [TARGET], [tmp_path / "engine.json"])


def test_the_command_makes_one(tmp_path, monkeypatch):
    release = MadeUpRelease().write(tmp_path / "release")
    monkeypatch.setenv("BURNISH_RELEASE_KEY", KEY.text().splitlines()[1])
    assert bundle(tmp_path / "bundle.zip", None, str(release), None) == 0
    assert read_offer(open_source(str(tmp_path / "bundle.zip")), KEY).release.version == "0.1.0"
    monkeypatch.delenv("BURNISH_RELEASE_KEY")
    with pytest.raises(SetupError, match="key"):
        bundle(tmp_path / "bundle.zip", None, str(release), None)
