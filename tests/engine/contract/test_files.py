"""Files are whole or not there."""

import errno
from pathlib import Path

import pytest

from burnish_engine.contract.errors import ExitCode, NoSpaceError
from burnish_engine.contract.files import cannot_write, replace_with_retry, write_atomic
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
