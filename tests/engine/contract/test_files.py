"""Files are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from burnish_engine.contract.errors import ExitCode, NoSpaceError
from burnish_engine.contract.files import (
    cannot_write,
    make_private,
    read_limited,
    replace_with_retry,
    write_atomic,
)
from burnish_engine.contract.paths import safe_name


def test_replaces_content_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "über all.json"
    write_atomic(file, "one")
    write_atomic(file, "zwei ß")
    assert file.read_text(encoding="utf-8") == "zwei ß"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    write_atomic(file, "old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("burnish_engine.contract.files.os.fsync", full)
    with pytest.raises(NoSpaceError, match="disk is full") as caught:
        write_atomic(file, "new")
    assert caught.value.exit_code is ExitCode.NO_SPACE
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_held_target_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "new").write_text("x")
    calls = []
    real = Path.replace

    def held(self, target):
        calls.append(target)
        if len(calls) < 3:
            raise PermissionError(13, "in use")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", held)
    replace_with_retry(tmp_path / "new", tmp_path / "target")
    assert len(calls) == 3
    assert (tmp_path / "target").read_text() == "x"


def test_other_failures_name_the_reason(tmp_path):
    error = cannot_write(tmp_path / "x", OSError(errno.EROFS, "Read-only file system"))
    assert "Read-only file system" in str(error)


@pytest.mark.parametrize(
    "hostile",
    ["../../etc/passwd", "..", "a/b\\c", "CON", "nul.txt", "", ".hidden", "x" * 500, "new\nline", "C:evil", "a\0b"],
)
def test_names_from_outside_stay_in_their_folder(tmp_path, hostile):
    name = safe_name(hostile)
    assert name
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert not set(name) & set('/\\:\0\n<>"|?*')
    assert len(name) <= 100
    assert name.split(".")[0].lower() not in {"con", "nul"}
    (tmp_path / name).write_text("works")


def test_nobody_can_put_a_link_where_a_file_will_be_written(tmp_path, monkeypatch):
    """The name beside the file is another one each time, and no file that lies there is opened."""
    seen = []
    real = Path.open

    def spy(path, mode="r", *rest, **options):
        seen.append((path.name, mode))
        return real(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", spy)
    file = tmp_path / ("n" * 250)
    write_atomic(file, "one")
    write_atomic(file, "two")
    (first, mode), (second, _) = seen
    assert first != second
    assert "x" in mode
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps access lists instead")
def test_a_persons_folders_are_for_that_person_alone(tmp_path):
    before = os.umask(0)
    try:
        make_private(tmp_path / "data" / "burnish" / "runs")
        make_private(tmp_path / "data" / "burnish" / "runs")
        (tmp_path / "shared").mkdir()
        make_private(tmp_path / "shared" / "mine")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("data", "data/burnish", "data/burnish/runs")]
    assert modes == [0o700] * 3
    assert (tmp_path / "shared" / "mine").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shared").stat().st_mode & 0o777 != 0o700
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "file")


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_only_a_small_plain_file_is_read(tmp_path):
    (tmp_path / "good").write_bytes(b"1234")
    assert read_limited(tmp_path / "good", 4) == b"1234"
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path, "folder"), (tmp_path / "pipe", "pipe"), (Path("/dev/zero"), "device")):
        with pytest.raises(ValueError, match=words):
            read_limited(path, 4)
    with pytest.raises(ValueError, match="larger"):
        read_limited(tmp_path / "good", 3)


def test_what_is_in_the_way_of_a_file_is_named(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NoSpaceError, match="file is a file"):
        write_atomic(file / "below", "x")
    with pytest.raises(NoSpaceError, match="there is no folder"):
        write_atomic(tmp_path / "missing" / "below", "x")
