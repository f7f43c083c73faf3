"""The trash: a deleted run is whole, comes back, goes after a week, and nothing outside of its folder is touched."""

import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.jobs import lease, trash
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import create_run, list_runs, read_state, write_state


def listed():
    return [run.paths.root for run in list_runs()]


def in_trash(folder=None):
    place = (folder or runs_dir()) / ".trash"
    return sorted(place.iterdir()) if place.is_dir() else []


def contents(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_deleted_run_is_no_run_until_it_is_restored_whole():
    paths, other = create_run(Recipe(name="one")), create_run(Recipe(name="two"))
    (paths.root / "adapter").mkdir()
    (paths.root / "adapter" / "weights").write_bytes(b"learned")
    before = contents(paths.root)
    trash.discard(paths)
    assert listed() == [other.root]
    assert not paths.root.exists()
    assert trash.restore(paths.root).root == paths.root
    assert {path: data for path, data in contents(paths.root).items() if path.name != ".owner.lock"} == before
    assert set(listed()) == {paths.root, other.root}
    assert in_trash() == []


def test_of_two_with_one_name_the_one_deleted_last_comes_back():
    first = create_run(Recipe(name="first"), runs_dir() / "same")
    trash.discard(first)
    time.sleep(0.005)
    trash.discard(create_run(Recipe(name="second"), runs_dir() / "same"))
    assert read_state(trash.restore(first.root)).name == "second"
    with pytest.raises(UsageError, match="another same"):
        trash.restore(first.root)
    trash.discard(first)
    trash.purge(first.root)
    assert read_state(trash.restore(first.root)).name == "first"


def test_purging_frees_the_space_of_that_run_alone():
    paths, other = create_run(Recipe(name="one")), create_run(Recipe(name="two"))
    trash.discard(paths)
    trash.discard(other)
    trash.purge(paths.root)
    assert [entry.name.partition("-")[2] for entry in in_trash()] == [other.root.name]
    for gone in (trash.restore, trash.purge):
        with pytest.raises(UsageError, match="not in the trash") as refused:
            gone(paths.root)
        assert other.root.name in refused.value.remedy


def test_what_is_older_than_a_week_goes():
    paths = create_run(Recipe())
    trash.discard(paths)
    trash.purge_old(now=time.time() + trash.KEPT_S - 60)
    assert len(in_trash()) == 1
    trash.purge_old(now=time.time() + trash.KEPT_S + 60)
    assert in_trash() == []


@pytest.mark.parametrize("status", ["running", "paused"])
def test_a_run_with_a_process_stays(status):
    paths = create_run(Recipe())
    pid, created = own_identity()
    state = {"status": status, "pid": pid, "process_created": created, "heartbeat": time.time()}
    write_state(paths, read_state(paths).model_copy(update=state))
    with pytest.raises(UsageError, match=status):
        trash.discard(paths)
    assert listed() == [paths.root]


def test_a_run_whose_process_has_just_begun_stays():
    paths = create_run(Recipe())
    with FileLock(str(paths.root / ".owner.lock")), pytest.raises(UsageError, match="another process"):
        trash.discard(paths)
    assert listed() == [paths.root]


def test_a_waiting_run_leaves_the_queue():
    paths = create_run(Recipe())
    lease.enqueue(paths, "cpu")
    trash.discard(paths)
    assert lease.queue() == []
    assert read_state(trash.restore(paths.root)).status == "stopped"


def test_a_run_whose_files_are_held_open_stays_whole(monkeypatch):
    def refuse(_source, _target):  # as Windows does while a program has a file in the folder open
        raise PermissionError(13, "Access is denied")

    paths = create_run(Recipe())
    monkeypatch.setattr(trash, "replace_with_retry", refuse)
    with pytest.raises(NoSpaceError, match="Access is denied"):
        trash.discard(paths)
    assert listed() == [paths.root]


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../outside", "runs/../../outside", ".trash", "missing", "x" * 5000, "a\0b"]
)
def test_no_name_reaches_out_of_the_folder(tmp_path, name):
    outside = runs_dir().parent / "outside"
    outside.mkdir(parents=True)
    (outside / "keep").write_text("mine")
    create_run(Recipe(name="one"))
    for act in (trash.restore, trash.purge):
        with pytest.raises(UsageError, match="not in the trash"):
            act(os.path.join(runs_dir(), name))  # noqa: PTH118  Path would tidy it
    assert (outside / "keep").read_text() == "mine"
    assert len(listed()) == 1


def test_links_in_the_trash_are_left_alone(tmp_path):
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    (runs_dir() / ".trash").mkdir(parents=True)
    (runs_dir() / ".trash" / "1000000000000-run").symlink_to(target)
    trash.purge_old(now=time.time() + 10 * trash.KEPT_S)
    with pytest.raises(UsageError):
        trash.purge(runs_dir() / "run")
    assert (target / "file").exists()


def test_what_is_no_run_is_not_in_the_trash_whoever_put_it_there(tmp_path):
    photos = tmp_path / ".trash" / "1000000000000-photos"
    photos.mkdir(parents=True)
    (photos / "one.jpg").touch()
    for act in (trash.restore, trash.purge):
        with pytest.raises(UsageError, match="not in the trash"):
            act(tmp_path / "photos")
    trash.purge_old(tmp_path, now=time.time() + 10 * trash.KEPT_S)
    trash.discard(create_run(Recipe(), tmp_path / "mine"))
    assert (photos / "one.jpg").exists()


def test_a_link_to_a_run_is_not_moved(tmp_path):
    paths = create_run(Recipe(), tmp_path / "mine")
    runs_dir().mkdir(parents=True)
    link = runs_dir() / "linked"
    link.symlink_to(paths.root)
    with pytest.raises(UsageError, match="is a link"):
        trash.discard(RunPaths(link))
    assert link.is_symlink()
    assert in_trash() == []


def test_a_trash_that_is_a_link_gets_nothing(tmp_path):
    paths = create_run(Recipe())
    (runs_dir() / ".trash").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is a link"):
        trash.discard(paths)
    assert listed() == [paths.root]


def test_what_cannot_be_removed_stays_until_the_next_time_and_hinders_nothing(monkeypatch):
    paths, other = create_run(Recipe(name="one")), create_run(Recipe(name="two"))
    trash.discard(paths)
    later = time.time() + trash.KEPT_S + 60
    with monkeypatch.context() as patch:
        patch.setattr(trash, "replace_with_retry", lambda *_: (_ for _ in ()).throw(PermissionError(13, "held")))
        trash.purge_old(now=later)
    assert trash.holds(paths.root)
    with monkeypatch.context() as patch:
        patch.setattr(trash.shutil, "rmtree", lambda *_, **__: None)  # as where the process ends before the first file
        trash.purge_old(now=later)
    assert not trash.holds(paths.root)
    assert len(in_trash()) == 1
    trash.discard(other)
    assert [entry.name.partition("-")[2] for entry in in_trash()] == [other.root.name]


def test_a_path_that_winds_back_deletes_the_run_it_names():
    paths = create_run(Recipe())
    paths.checkpoints.mkdir()
    trash.discard(RunPaths(Path(f"{paths.checkpoints}/..")))
    assert [entry.name.partition("-")[2] for entry in in_trash()] == [paths.root.name]


def test_a_run_elsewhere_has_its_trash_beside_it(tmp_path):
    paths = create_run(Recipe(), tmp_path / "mine")
    trash.discard(paths)
    assert len(in_trash(tmp_path)) == 1
    assert trash.restore(paths.root).state.is_file()
