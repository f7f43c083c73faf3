"""A model's files are compared with their published checksums: of what was fetched, and of the hub's cache."""

import hashlib
import os

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.hub.fetch import fetch
from burnish_engine.hub.integrity import check_files

from support.hubs.fetching import NAME, WEIGHTS
from support.hubs.hub_server import git_sha1


def check(folder, told=None):
    return check_files(folder, lambda *progress: told.append(progress) if told is not None else None)


def damage(path):
    """Change one byte without a change of size, as a bad disk does."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.full
def test_a_fetched_model_is_as_published_until_a_byte_changes(model):
    folder = fetch(NAME)
    told = []
    found = check(folder, told)
    assert found.checked > 3
    assert (
        found.bytes
        == told[-1][2]
        == sum(file.stat().st_size for file in folder.iterdir()) - (folder / "burnish-model.json").stat().st_size
    )
    damage(folder / WEIGHTS)
    with pytest.raises(SetupError, match=WEIGHTS):
        check(folder)


def test_fetching_again_mends_what_was_damaged_and_downloads_nothing_else(hub, model):
    folder = fetch(NAME)
    sent = hub.sent(WEIGHTS)
    assert fetch(NAME) == folder
    assert hub.sent(WEIGHTS) == sent
    damage(folder / WEIGHTS)
    fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]


def cached(tmp_path, tiny):
    """The model as the hub's cache keeps it: links to files that are named by their content."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "a1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name in (WEIGHTS, "config.json"):
        content = (tiny / name).read_bytes()
        blob = blobs / (hashlib.sha256(content).hexdigest() if name == WEIGHTS else git_sha1(content))
        blob.write_bytes(content)
        try:
            (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
        except OSError:
            pytest.skip("no links here")
    return snapshot


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_the_hub_s_cache_is_checked_by_the_names_of_its_files(tmp_path, tiny, name):
    folder = cached(tmp_path, tiny)
    assert check(folder).checked == 2
    damage((folder / name).resolve())
    with pytest.raises(SetupError, match=name):
        check(folder)


def test_a_file_that_is_gone_is_said(tmp_path, tiny):
    folder = cached(tmp_path, tiny)
    (folder / WEIGHTS).resolve().unlink()
    with pytest.raises(SetupError, match=WEIGHTS):
        check(folder)


def test_of_a_copied_folder_nothing_is_claimed(tiny):
    found = check(tiny)
    assert found.checked == 0
    assert found.unpublished > 3


@pytest.mark.full
def test_it_can_be_stopped(model):
    folder = fetch(NAME)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_files(folder, stop)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(SetupError, match="nowhere"):
        check(tmp_path / "nowhere")
