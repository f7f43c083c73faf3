"""The queue of downloads: processes of their own carry it out, and nothing that dies loses it."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from burnish_engine.contract.errors import StoppedError, UsageError
from burnish_engine.contract.paths import fetched_model_dir, models_dir
from burnish_engine.hub import download_queue as queue
from burnish_engine.hub import fetch
from burnish_engine.hub.download_worker import work_through
from burnish_engine.hub.manifest import read_manifest

from support.app.serve import wait_for
from support.hubs.fetching import NAME, WEIGHTS

OTHER = "Bench/Second"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Each test begins as a process of its own would; processes that a test leaves are ended."""
    monkeypatch.setattr(queue, "_last_started", None)
    yield
    for entry in queue.list_downloads():
        queue.cancel_download(entry.name)


def entry_of(name=NAME):
    return next((entry for entry in queue.list_downloads() if entry.name == name), None)


def tended(condition):
    """Wait as a window does: it asks again and again how the downloads are."""

    def asked():
        queue.start_waiting()
        return condition()

    return wait_for(asked)


def is_loading():
    entry = entry_of()
    return entry.what.endswith(WEIGHTS) and entry.bytes_per_s > 0 and entry


def test_several_are_carried_out_and_checked(hub, model, tiny, burnish_home):
    hub.host(OTHER, tiny)
    queue.add_download(NAME)
    queue.add_download(OTHER)
    queue.add_download(NAME)  # asked for twice
    assert [entry.name for entry in queue.list_downloads()] == [NAME, OTHER]
    tended(lambda: all(entry.status == "finished" for entry in queue.list_downloads()))
    for name in (NAME, OTHER):
        assert read_manifest(fetched_model_dir(name)).is_whole(fetched_model_dir(name))
        assert entry_of(name).done == entry_of(name).total > 0
    assert hub.sent(WEIGHTS) == 2 * len(model.files[WEIGHTS])
    queue.cancel_download(NAME)
    assert entry_of() is None
    assert read_manifest(fetched_model_dir(NAME)), "a model that is here stays"


@pytest.mark.full
def test_a_paused_one_goes_on_where_it_stopped(hub, model, burnish_home):
    model.pause_s = 0.05
    queue.add_download(NAME)
    loading = tended(is_loading)
    assert loading.total == sum(len(content) for name, content in model.files.items() if name in wanted(model))
    assert loading.seconds_left > 0
    queue.pause_download(NAME)
    pid = loading.pid
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    queue.start_waiting()
    assert entry_of().status == "paused", "nobody but the person continues with it"
    model.pause_s = 0.0
    queue.add_download(NAME)
    tended(lambda: entry_of().status == "finished")
    assert any(request.start > 0 for request in hub.file_requests(WEIGHTS))


def wanted(model):
    return [name for name in model.files if not name.endswith((".py", ".bin")) and name != "consolidated.safetensors"]


@pytest.mark.full
def test_a_killed_process_loses_nothing(hub, model, burnish_home):
    model.pause_s = 0.05
    queue.add_download(NAME)
    loading = tended(is_loading)
    kill(loading.pid)
    model.pause_s = 0.0
    tended(lambda: entry_of().status == "finished")
    assert any(request.start > 0 for request in hub.file_requests(WEIGHTS))
    assert read_manifest(fetched_model_dir(NAME)).is_whole(fetched_model_dir(NAME))


def kill(pid):
    os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_canceled_one_leaves_no_files(hub, model, burnish_home):
    model.pause_s = 0.05
    queue.add_download(NAME)
    tended(is_loading)
    assert list((models_dir() / ".partial").rglob("*.part"))
    queue.cancel_download(NAME)
    assert entry_of() is None
    wait_for(lambda: not list((models_dir() / ".partial").rglob("*.part")))
    assert not fetched_model_dir(NAME).exists()
    with pytest.raises(UsageError):
        queue.pause_download(NAME)


def test_what_another_program_downloads_is_neither_waited_for_nor_deleted(burnish_home):
    partial = models_dir() / ".partial"
    partial.mkdir(parents=True)
    with fetch._DownloadLock(NAME, None, lambda: False):
        kept = fetch._staging_folder(NAME) / "file.part"
        kept.parent.mkdir(parents=True)
        kept.touch()
        with pytest.raises(StoppedError):
            fetch.discard(NAME, wait_s=0.0)
        assert kept.exists()
    fetch.discard(NAME)
    assert not kept.exists()


@pytest.mark.full
def test_damage_on_the_way_is_said(hub, model, burnish_home):
    model.wrong_bytes.add(WEIGHTS)
    queue.add_download(NAME)
    failed = tended(lambda: entry_of().status == "failed" and entry_of())
    assert WEIGHTS in failed.message
    assert "proxy" in failed.remedy
    assert not fetched_model_dir(NAME).exists()


@pytest.mark.full
def test_two_are_downloaded_at_a_time(hub, model, tiny, burnish_home):
    names = [NAME, OTHER, "Bench/Third"]
    for name in names[1:]:
        hub.host(name, tiny)
    for hosted in hub.models.values():
        hosted.pause_s = 0.1
    for name in names:
        queue.add_download(name)
    most = 0

    def all_finished():
        nonlocal most
        states = [entry.status for entry in queue.list_downloads()]
        most = max(most, states.count("running"))
        if most == queue.AT_A_TIME:
            for hosted in hub.models.values():
                hosted.pause_s = 0.0
        return states == ["finished"] * 3

    tended(all_finished)
    assert most == queue.AT_A_TIME


def test_a_network_that_is_not_there_is_said(burnish_home, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("BURNISH_OFFLINE", "0")
    monkeypatch.setattr("burnish_engine.hub.fetch._FIRST_ATTEMPTS", 2)
    monkeypatch.setattr(queue, "start_waiting", lambda: None)
    queue.add_download(NAME)
    assert work_through() == 1  # here, and not in a process of its own, which would try for seconds
    failed = entry_of()
    assert failed.status == "failed"
    assert "could not be reached" in failed.message
    assert "network" in failed.remedy


@pytest.mark.full
def test_a_token_is_in_no_file_and_is_asked_for_again(hub, model, burnish_home):
    model.gated, model.admitted, model.pause_s = "auto", ("hf_secret",), 0.05
    queue.add_download(NAME, "hf_secret")
    loading = tended(is_loading)
    assert not holding(burnish_home, b"hf_secret")
    kill(loading.pid)
    waiting = tended(lambda: entry_of().status == "paused" and entry_of())
    assert "token" in waiting.message
    model.pause_s = 0.0
    queue.add_download(NAME, "hf_secret")
    tended(lambda: entry_of().status == "finished")
    assert not holding(burnish_home, b"hf_secret")


def holding(folder, secret):
    return [file for file in Path(folder).rglob("*") if file.is_file() and secret in file.read_bytes()]


def test_a_process_that_keeps_dying_is_given_up(hub, model, burnish_home):
    queue.add_download(NAME)
    queue.pause_download(NAME)
    entry = entry_of()
    for _ in range(queue._MOST_LOSSES):
        queue._write(entry, status="running", pid=2**22 + 1, process_created=1.0, losses=entry.losses)
        queue._mend(entry_of())
        entry = entry_of()
    assert entry.status == "failed"


@pytest.mark.parametrize("name", ["no name", "../../etc/passwd", "a--b/c", "owner/../x"])
def test_names_that_are_none_never_become_a_file(burnish_home, name):
    with pytest.raises(UsageError):
        queue.add_download(name)
    assert queue.list_downloads() == []
