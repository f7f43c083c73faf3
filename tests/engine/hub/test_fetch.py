"""A model arrives whole and checked, or not at all; what is there is never asked for twice."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple

import pytest

from burnish_engine.contract.errors import NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.contract.paths import fetched_model_dir, models_dir
from burnish_engine.hub import fetch as fetch_module
from burnish_engine.hub.fetch import fetch
from burnish_engine.hub.manifest import read_manifest
from burnish_engine.models.source import open_model

NAME = "Bench/Tiny-Llama"
WEIGHTS = "model.safetensors"
NEEDED = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", WEIGHTS,
    "README.md", "LICENSE", "burnish-model.json",
}  # fmt: skip


def refusal(kind, name=NAME, **options):
    """The paragraph that a fetch is refused with; nothing that looks like a model is left."""
    with pytest.raises(kind) as caught:
        fetch(name, **options)
    assert not fetched_model_dir(name).exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_what_training_needs_arrives_and_opens(model, tiny):
    folder = fetch(NAME)
    assert {path.name for path in folder.iterdir()} == NEEDED & ({*model.files} | {"burnish-model.json"})
    for path in folder.iterdir():
        assert path.name == "burnish-model.json" or path.read_bytes() == (tiny / path.name).read_bytes()
    source = open_model(NAME)
    assert source.folder == folder
    assert source.spec.family == "llama"
    assert {path.name for path in (models_dir() / ".partial").iterdir()} <= {"Bench--Tiny-Llama.lock"}


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


def test_progress_ends_with_all_bytes_and_never_goes_back(model):
    told = []
    fetch(NAME, progress=lambda what, done, total: told.append((done, total)))
    done, total = told[-1]
    assert done == total == sum(len(model.files[name]) for name in NEEDED if name in model.files)
    counts = [count for count, _ in told]
    assert counts == sorted(counts)


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


def test_a_named_license_is_read_from_the_card(model):
    model.card, model.license = {"license": "other", "license_name": "tiny-community"}, "other"
    seen = []
    fetch(NAME, listed=lambda listing: seen.append(listing.license))
    assert seen == ["tiny-community"]


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


def test_a_damaged_folder_is_fetched_again(model):
    folder = fetch(NAME)
    (folder / WEIGHTS).unlink()
    assert fetch(NAME) == folder
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]


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


def test_weights_in_several_files(model):
    split_weights(model)
    model.files["model-00003-of-00002.safetensors"] = b"not in the index"
    names = {path.name for path in fetch(NAME).iterdir()}
    assert {name for name in names if "safetensors" in name} == {
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


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


# Interruptions


def test_a_cut_connection_goes_on_where_it_stopped(hub, model):
    size = len(model.files[WEIGHTS])
    model.cut_after[WEIGHTS] = [100_000, 200_000]
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) == size
    starts = [request.start for request in hub.file_requests(WEIGHTS) if request.server == "content"]
    assert starts == [0, 100_000, 300_000]


def test_a_server_that_keeps_cutting_is_given_up_and_the_part_stays(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    text = refusal(SetupError)
    assert "100,000" in text or "cut the connection" in text
    model.cut_after.clear()
    before = hub.sent(WEIGHTS)
    fetch(NAME)
    assert hub.sent(WEIGHTS) - before == len(model.files[WEIGHTS]) - 100_000


def test_killed_in_mid_file_and_started_again_downloads_only_the_rest(hub, model):
    model.pause_s = 0.03
    code = f"from burnish_engine.hub.fetch import fetch; fetch({NAME!r})"
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    deadline = time.monotonic() + 60
    while hub.sent(WEIGHTS) < 400_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not fetched_model_dir(NAME).exists()
    [part] = (models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts").iterdir()
    there = part.stat().st_size
    assert 0 < there < len(model.files[WEIGHTS])
    model.pause_s, before = 0.0, len(hub.requests)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    again = {name: hub.sent(name, since=before) for name in model.files}
    assert {name: count for name, count in again.items() if count} == {WEIGHTS: len(model.files[WEIGHTS]) - there}


def test_canceled_and_started_again(hub, model):
    model.pause_s = 0.01
    with pytest.raises(StoppedError):
        fetch(NAME, cancelled=lambda: hub.sent(WEIGHTS) > 300_000)
    assert not fetched_model_dir(NAME).exists()
    model.pause_s = 0.0
    fetch(NAME)
    assert 0 < [r.start for r in hub.file_requests(WEIGHTS)][-1] <= 400_000


def test_a_file_that_changed_between_attempts_starts_over(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    refusal(SetupError)
    model.cut_after.clear()
    model.files[WEIGHTS] = model.files[WEIGHTS][::-1]
    before = hub.sent(WEIGHTS)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) - before == len(model.files[WEIGHTS])


def test_a_file_that_changes_during_the_download_is_told(model):
    model.new_etag[WEIGHTS] = "0" * 64
    assert f"{WEIGHTS} of {NAME} changed" in refusal(SetupError)


def test_a_server_without_ranges_sends_it_all_again(hub, model):
    model.cut_after[WEIGHTS] = [100_000]
    model.ignores_range = True
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) > len(model.files[WEIGHTS])


def test_a_part_damaged_on_disk_is_found_out_and_replaced(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    refusal(SetupError)
    model.cut_after.clear()
    [part] = (models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts").iterdir()
    part.write_bytes(b"\0" * part.stat().st_size)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]


def test_a_part_longer_than_the_file_is_dropped(model):
    parts = models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts"
    parts.mkdir(parents=True)
    (parts / f"{hashlib.sha256(model.files[WEIGHTS]).hexdigest()}.part").write_bytes(model.files[WEIGHTS] + b"more")
    assert (fetch(NAME) / WEIGHTS).read_bytes() == model.files[WEIGHTS]


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_wrong_bytes_are_deleted_and_told(hub, model, name):
    model.wrong_bytes.add(name)
    text = refusal(SetupError)
    assert name in text
    assert "other content" in text
    aside = models_dir() / ".partial" / "Bench--Tiny-Llama"
    assert not list((aside / "parts").iterdir())
    assert not (aside / "files" / name).exists()
    model.wrong_bytes.clear()
    assert (fetch(NAME) / name).read_bytes() == model.files[name]


# A hub that refuses


def test_a_busy_hub_is_waited_for(hub, model):
    model.busy = [(429, 0), (503, None), (500, None)]
    told = []
    assert fetch(NAME, progress=lambda what, done, total: told.append(what)).is_dir()
    assert not model.busy
    assert any("waiting" in what and "503" in what for what in told)


def test_retry_after_is_kept_to(model):
    model.busy = [(429, 1)]
    started = time.monotonic()
    fetch(NAME)
    assert time.monotonic() - started >= 1.0


def test_a_hub_that_stays_busy_is_given_up(model):
    model.busy = [(503, None)] * 30
    assert "503" in refusal(SetupError)
    model.busy = [(429, 86_400)]
    assert "429" in refusal(SetupError)


def test_waiting_for_a_busy_hub_can_be_canceled(model):
    model.busy = [(429, 60)]
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    with pytest.raises(StoppedError):
        fetch(NAME, cancelled=stop.is_set)
    assert time.monotonic() - started < 5


def test_a_gated_model_without_a_token_says_what_to_do(hub, model):
    model.gated = "manual"
    text = refusal(SetupError)
    for word in (NAME, "accept its terms", "HF_TOKEN"):
        assert word in text
    assert not hub.file_requests("config.json")


def test_a_gated_model_with_a_token_that_was_not_admitted(model):
    model.gated = "manual"
    assert "no access" in refusal(SetupError, token="hf_other")


def test_the_token_reaches_the_hub_alone_and_no_file(hub, model, burnish_home, monkeypatch):
    model.gated, model.admitted = "auto", ("hf_secret",)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    model.wrong_bytes.add(WEIGHTS)
    refusal(SetupError)
    model.wrong_bytes.clear()
    fetch(NAME)
    assert {r.authorization for r in hub.requests if r.server == "hub"} == {"Bearer hf_secret"}
    assert {r.authorization for r in hub.requests if r.server == "content"} == {""}
    for path in burnish_home.rglob("*"):
        assert not path.is_file() or b"hf_secret" not in path.read_bytes()


def test_a_token_with_a_line_break_is_refused_without_telling_it(model):
    assert "hf_se" not in refusal(UsageError, token="hf_se\ncret")


def test_an_unknown_model(hub):
    text = refusal(UsageError, "Bench/Typo")
    assert "Bench/Typo" in text
    assert "Check the spelling" in text


@pytest.mark.parametrize("name", ["typo", "a/b/c", "../x", "a/..", "a--b/c", "-a/b", "a/b?x", "", "C:/models"])
def test_names_that_are_none_ask_nobody(hub, name):
    with pytest.raises(UsageError, match="no name of a model"):
        fetch(name)
    assert hub.requests == []


@pytest.mark.parametrize(
    "answer",
    [b"<html>Log in to this network</html>", b"{}", b'{"id": "a/b", "sha": "../.."}', b"[" * 100_000, b"\xff\xfe"],
)
def test_an_answer_that_is_none(model, answer):
    model.answer = answer
    assert "did not answer as a model hub" in refusal(SetupError)


def test_files_without_a_checksum_are_refused(model):
    document = model.document(NAME)
    for entry in document["siblings"]:
        del entry["blobId"]
    model.answer = json.dumps(document).encode()
    assert "no size and checksum" in refusal(SetupError)


def test_no_hub_there(monkeypatch, hub):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    assert "127.0.0.1 could not be reached" in refusal(SetupError)
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")
    assert "mirror.example" in refusal(UsageError)


@pytest.mark.parametrize("variable", ["BURNISH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_connection(hub, model, monkeypatch, variable):
    for name in ("BURNISH_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "1")

    def opened(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", opened)
    text = refusal(SetupError)
    assert "asks for no network" in text
    assert hub.requests == []


def test_offline_says_when_the_model_is_here(model, monkeypatch):
    folder = fetch(NAME)
    monkeypatch.setenv("BURNISH_OFFLINE", "1")
    with pytest.raises(SetupError, match="already on this machine"):
        fetch(NAME)
    assert open_model(NAME).folder == folder


# The disk, and others


def test_too_full_a_disk_is_told_before_the_download(hub, model, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetch_module.shutil, "disk_usage", lambda _: usage(10**9, 9 * 10**8, 10**8))
    text = refusal(NoSpaceError)
    assert "0.10 GB are free" in text
    assert not hub.file_requests("config.json")


def test_a_models_folder_that_cannot_be_made(model, burnish_home):
    (burnish_home / "models").write_text("a file")
    assert "models" in refusal(NoSpaceError)


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
    assert any("waiting for another download" in what for what in told)
    assert hub.sent(WEIGHTS) == len(model.files[WEIGHTS])


def test_it_says_who_asks_and_nothing_more(hub, model):
    fetch(NAME)
    assert {request.agent.split("/")[0] for request in hub.requests} == {"burnish"}
