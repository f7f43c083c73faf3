"""Hashes of files, and which are remembered."""

import hashlib
import json
import os

import pytest

from burnish_engine.contract.paths import file_hashes_file
from burnish_engine.runs import file_hashes
from burnish_engine.runs.file_hashes import CanceledError, known_sha256, sha256_file

LONG_AGO = 1_700_000_000


@pytest.fixture
def weights(tmp_path):
    """A file that has not changed for long."""
    path = tmp_path / "weights é.safetensors"
    path.write_bytes(os.urandom(3 * 2**20 + 17))
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def read(monkeypatch):
    """Names of the files that were really read."""
    names = []

    def counted(path, canceled=lambda: False):
        names.append(path.name)
        return sha256_file(path, canceled)

    monkeypatch.setattr(file_hashes, "sha256_file", counted)
    return names


def test_the_hash_is_that_of_the_content(weights, tmp_path):
    assert sha256_file(weights) == hashlib.sha256(weights.read_bytes()).hexdigest()
    empty = tmp_path / "empty"
    empty.touch()
    assert sha256_file(empty) == hashlib.sha256().hexdigest()


def test_a_large_file_is_read_once_until_it_changes(weights, read):
    first = known_sha256(weights, large=1)
    assert known_sha256(weights, large=1) == first == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert read == [weights.name]
    os.utime(weights, (LONG_AGO + 5, LONG_AGO + 5))
    assert known_sha256(weights, large=1) == first
    assert len(read) == 2
    weights.write_bytes(b"other")
    os.utime(weights, (LONG_AGO + 5, LONG_AGO + 5))  # only its size tells
    assert known_sha256(weights, large=1) == hashlib.sha256(b"other").hexdigest()


def test_a_file_that_may_still_change_and_a_small_one_are_not_remembered(weights, read):
    known_sha256(weights)  # small beside what models have
    os.utime(weights)
    known_sha256(weights, large=1)
    assert not file_hashes_file().exists()
    known_sha256(weights, large=1)
    assert len(read) == 3


def test_a_file_replaced_while_it_is_read_is_not_remembered(weights, monkeypatch):
    def slow(path, canceled):
        digest = sha256_file(path, canceled)
        os.utime(path, (LONG_AGO + 9, LONG_AGO + 9))
        return digest

    monkeypatch.setattr(file_hashes, "sha256_file", slow)
    known_sha256(weights, large=1)
    assert not file_hashes_file().exists()


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1, "files": {"a": {"bytes": "many"}}}', "\0"])
def test_a_damaged_store_is_made_again(weights, read, content):
    file_hashes_file().write_text(content, encoding="utf-8")
    known_sha256(weights, large=1)
    known_sha256(weights, large=1)
    assert len(read) == 1


def test_a_newer_versions_store_is_left_alone(weights, read):
    file_hashes_file().write_text('{"version": 2, "files": []}', encoding="utf-8")
    known_sha256(weights, large=1)
    known_sha256(weights, large=1)
    assert len(read) == 2
    assert json.loads(file_hashes_file().read_text(encoding="utf-8"))["version"] == 2


def test_the_oldest_are_dropped(weights, tmp_path, monkeypatch, read):
    monkeypatch.setattr(file_hashes, "MOST", 2)
    others = []
    for name in ("one", "two"):
        path = tmp_path / name
        path.write_bytes(name.encode())
        os.utime(path, (LONG_AGO, LONG_AGO))
        others.append(path)
    for path in (weights, *others):
        known_sha256(path, large=1)
    kept = json.loads(file_hashes_file().read_text(encoding="utf-8"))["files"]
    assert list(kept) == [str(path.resolve()) for path in others]


def test_it_can_be_canceled_between_blocks(weights):
    asked = []

    def canceled():
        asked.append(1)
        return len(asked) == 2

    with pytest.raises(CanceledError):
        sha256_file(weights, canceled)
    assert len(asked) == 2


def test_a_store_that_cannot_be_written_costs_only_time(weights, monkeypatch, tmp_path):
    blocked = tmp_path / "no folder"
    blocked.write_text("a file", encoding="utf-8")
    monkeypatch.setattr(file_hashes, "file_hashes_file", lambda: blocked / "file-hashes.json")
    assert known_sha256(weights, large=1) == hashlib.sha256(weights.read_bytes()).hexdigest()
