"""Datasets of the hub: fetched by address, and what is wrong decides what a person is told."""

import socket

import pytest

from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.data.files import hub_datasets
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.hub_datasets import hub_folder
from burnish_engine.hub.failures import failure_of

from support.hubs.dataset_hub import DatasetHub

LIBRARY_WORDS = ("snapshot", "LocalEntryNotFound", "HfHubHTTPError", "Client Error", "developer.mozilla")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setenv("BURNISH_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    name = f"someone/{tmp_path.name.replace('_', '-')[:60]}"  # a name of its own: what was fetched once stays here
    files = {"data/rows.jsonl": b'{"text": "a"}\n', "README.md": b"# rows\n", "x.py": b"1"}
    with DatasetHub(name, files) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.mark.full
def test_a_dataset_is_fetched_by_its_address(hub):
    (part,) = find_parts([f"hf://datasets/{hub.name}"]).parts
    assert part.path.read_bytes() == hub.files["data/rows.jsonl"]
    assert not list(part.path.parents[1].rglob("*.py"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("refusal", "error", "words"),
    [
        ((401, "RepoNotFound"), UsageError, "spelling"),
        ((404, "RevisionNotFound"), UsageError, "revision main"),
        ((403, "GatedRepo"), SetupError, "terms"),
        ((500, ""), SetupError, "status 500"),
        ((404, ""), SetupError, "status 404"),
        ((200, ""), SetupError, "no answer of a hub"),
    ],
)
def test_what_a_hub_refuses_is_told_in_words_of_our_own(hub, refusal, error, words):
    hub.refuse = refusal
    with pytest.raises(error) as caught:
        hub_folder(f"hf://datasets/{hub.name}")
    assert words in str(caught.value)
    assert hub.name in caught.value.what
    assert caught.value.remedy
    assert not [word for word in LIBRARY_WORDS if word in str(caught.value)]


@pytest.mark.full
def test_a_hub_that_is_not_reached_is_told_with_the_reason(hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(SetupError, match="could not be reached") as caught:
        hub_folder(f"hf://datasets/{hub.name}")
    assert "network" in caught.value.remedy
    assert not [word for word in LIBRARY_WORDS if word in str(caught.value)]
    monkeypatch.setenv("HF_ENDPOINT", "http://[::1")
    with pytest.raises(UsageError, match="HF_ENDPOINT"):
        hub_folder(f"hf://datasets/{hub.name}")


def test_a_full_disk_is_told_as_one(hub, monkeypatch):
    failure = failure_of(OSError(28, "No space left on device"))
    monkeypatch.setattr(hub_datasets, "read_failure", lambda _text: failure)
    hub.refuse = (500, "")
    with pytest.raises(NoSpaceError):
        hub_folder(f"hf://datasets/{hub.name}")


@pytest.mark.parametrize("address", ["hf://models/a/b", "hf://datasets/a", "https://x.org/a.jsonl", "s3://a/b.jsonl"])
def test_other_addresses_are_named_whole(address):
    with pytest.raises(UsageError) as caught:
        find_parts([address])
    assert address in caught.value.what
    assert "hf://datasets/" in str(caught.value)
