"""A model arrives whole and checked, or not at all; what is there is never asked for twice."""

import hashlib
import json
import shutil
import threading
import time
from collections import namedtuple

import pytest

from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.contract.paths import fetched_model_dir, models_dir
from burnish_engine.hub import fetch as fetch_module
from burnish_engine.hub.fetch import fetch
from burnish_engine.hub.manifest import read_manifest
from burnish_engine.models.checkpoint.source import open_model

from support.hubs.fetching import NAME, WEIGHTS, refusal

NEEDED = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", WEIGHTS,
    "README.md", "LICENSE", "burnish-model.json",
}  # fmt: skip


@pytest.mark.full
def test_only_what_training_needs_arrives_and_opens(model, tiny):
    folder = fetch(NAME)
    assert {path.name for path in folder.iterdir()} == NEEDED & ({*model.files} | {"burnish-model.json"})
    for path in folder.iterdir():
        assert path.name == "burnish-model.json" or path.read_bytes() == (tiny / path.name).read_bytes()
    source = open_model(NAME)
    assert source.folder == folder
    assert source.spec.family == "llama"
    assert {path.name for path in (models_dir() / ".partial").iterdir()} <= {"Bench--Tiny-Llama.lock"}


@pytest.mark.full
def test_what_was_fetched_is_written_down(model):
    folder = fetch(NAME)
    manifest = read_manifest(folder)
    assert (manifest.name, manifest.revision, manifest.commit) == (NAME, "main", model.commit)
    assert manifest.license == "apache-2.0"
    assert {file.name: file.sha256 for file in manifest.files} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "burnish-model.json"
    }


@pytest.mark.full
def test_progress_ends_with_all_bytes_and_never_goes_back(model):
    told = []
    fetch(NAME, progress=lambda what, done, total: told.append((done, total)))
    done, total = told[-1]
    assert done == total == sum(len(model.files[name]) for name in NEEDED if name in model.files)
    counts = [count for count, _ in told]
    assert counts == sorted(counts)


@pytest.mark.full
def test_license_gating_and_size_are_told_before_the_download(hub, model):
    model.gated, model.admitted = "auto", ("hf_good",)
    seen = []

    def listed(listing):
        seen.append((listing.license, listing.gated, listing.total_bytes, hub.file_requests(WEIGHTS)))
        raise UsageError("No, thank you.")

    refusal(UsageError, token="hf_good", listed=listed)
    [(license_name, gated, total, requests)] = seen
    assert (license_name, gated, requests) == ("apache-2.0", True, [])
    assert total > len(model.files[WEIGHTS])


@pytest.mark.full
def test_a_named_license_is_read_from_the_card(model):
    model.card, model.license = {"license": "other", "license_name": "tiny-community"}, "other"
    seen = []
    fetch(NAME, listed=lambda listing: seen.append(listing.license))
    assert seen == ["tiny-community"]


@pytest.mark.full
def test_again_downloads_nothing_and_a_new_commit_everything_new(hub, model):
    fetch(NAME)
    before = len(hub.requests)
    assert fetch(NAME) == fetched_model_dir(NAME)
    assert [request.path.split("/")[1] for request in hub.requests[before:]] == ["api"]
    model.files["README.md"] = b"# Tiny, second edition\n"
    folder = fetch(NAME)
    assert (folder / "README.md").read_bytes() == model.files["README.md"]
    assert read_manifest(folder).commit == model.commit
    assert {path.name for path in models_dir().iterdir()} == {".partial", folder.name}


@pytest.mark.full
def test_a_damaged_folder_is_fetched_again(model):
    folder = fetch(NAME)
    (folder / WEIGHTS).unlink()
    assert fetch(NAME) == folder
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]


@pytest.mark.full
def test_a_revision_can_be_named(model):
    assert read_manifest(fetch(NAME, revision=model.commit)).revision == model.commit
    shutil.rmtree(fetched_model_dir(NAME))
    assert "'v9'" in refusal(UsageError, revision="v9")


def split_weights(model, names=("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")):
    """Offer the weights in several files with an index."""
    whole = model.files.pop(WEIGHTS)
    for name in names:
        model.files[name] = whole
    index = {"weight_map": {f"tensor{n}": name for n, name in enumerate(names)}}
    model.files["model.safetensors.index.json"] = json.dumps(index).encode()


@pytest.mark.full
def test_weights_in_several_files(model):
    split_weights(model)
    model.files["model-00003-of-00002.safetensors"] = b"not in the index"
    names = {path.name for path in fetch(NAME).iterdir()}
    assert {name for name in names if "safetensors" in name} == {
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name",
    ["../../evil.safetensors", "/tmp/evil.safetensors", "C:\\evil.safetensors", "sub/x.safetensors", "code.py",
     "con.safetensors", "x\0.safetensors"],
)  # fmt: skip
def test_an_index_cannot_lead_out_of_the_folder(hub, model, name):
    split_weights(model, (name,))
    text = refusal(SetupError)
    assert repr(name) in text
    assert not any(repr(name)[1:-1] in request.path for request in hub.requests)
    assert {path.name for path in models_dir().iterdir()} == {".partial"}


def test_an_index_of_missing_files(model):
    split_weights(model)
    del model.files["model-00002-of-00002.safetensors"]
    assert "model-00002-of-00002.safetensors" in refusal(SetupError)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("index", [b"", b"[]", b'{"weight_map": 3}', b'{"weight_map": {}}', b"[" * 5000, b"\xff"])
def test_an_index_that_is_none(model, index):
    split_weights(model)
    model.files["model.safetensors.index.json"] = index
    assert "index" in refusal(SetupError)


@pytest.mark.parametrize(
    ("drop", "words"), [(WEIGHTS, "pickles (pytorch_model.bin)"), ("config.json", "has no config.json")]
)
def test_what_cannot_be_trained_is_told(hub, model, drop, words):
    del model.files[drop]
    assert words in refusal(SetupError)
    assert not hub.file_requests("config.json")


def test_adapters_and_gguf_are_told_apart(model):
    config = model.files.pop("config.json")
    model.files["adapter_config.json"] = config
    assert "adapter for another model" in refusal(SetupError)
    del model.files["adapter_config.json"]
    model.files["tiny.Q8_0.gguf"] = b"GGUF"
    assert "GGUF files" in refusal(SetupError)


def test_too_full_a_disk_is_told_before_the_download(hub, model, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetch_module.shutil, "disk_usage", lambda _: usage(10**9, 9 * 10**8, 10**8))
    text = refusal(NoSpaceError)
    assert "0.10 GB are free" in text
    assert not hub.file_requests("config.json")


def test_a_models_folder_that_cannot_be_made(model, burnish_home):
    (burnish_home / "models").write_text("a file")
    assert "models" in refusal(NoSpaceError)


@pytest.mark.full
def test_of_two_at_once_one_downloads_and_the_other_waits(hub, model):
    model.pause_s = 0.01
    told, folders = [], []

    def run(progress=None):
        folders.append(fetch(NAME, progress=progress))

    first = threading.Thread(target=run)
    first.start()
    while not hub.sent(WEIGHTS):
        time.sleep(0.01)
    run(lambda what, done, total: told.append(what))
    first.join()
    assert folders == [fetched_model_dir(NAME)] * 2
    assert any("Waiting for another download" in what for what in told)
    assert hub.sent(WEIGHTS) == len(model.files[WEIGHTS])


@pytest.mark.full
def test_it_says_who_asks_and_nothing_more(hub, model):
    fetch(NAME)
    assert {request.agent.split("/")[0] for request in hub.requests} == {"burnish"}
