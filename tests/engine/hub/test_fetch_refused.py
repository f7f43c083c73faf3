"""What a person is told where a hub refuses, answers nonsense or may not be asked."""

import json
import socket
import threading
import time

import pytest

from burnish_engine.contract.errors import SetupError, StoppedError, UsageError
from burnish_engine.hub.fetch import fetch
from burnish_engine.models.checkpoint.source import open_model

from support.hubs.fetching import NAME, WEIGHTS, refusal


@pytest.mark.full
def test_a_busy_hub_is_waited_for(hub, model):
    model.busy = [(429, 0), (503, None), (500, None)]
    told = []
    assert fetch(NAME, progress=lambda what, done, total: told.append(what)).is_dir()
    assert not model.busy
    assert any("Waiting" in what and "503" in what for what in told)


@pytest.mark.full
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


@pytest.mark.timeout(100)  # the hub asks for more
def test_waiting_for_a_busy_hub_can_be_canceled(model):
    model.busy = [(429, 120)]
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(StoppedError):
        fetch(NAME, canceled=stop.is_set)


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


@pytest.mark.parametrize("size", [-1, 10**16, 10**400, 1e300, "many"])
def test_sizes_that_no_file_has(model, size):
    document = model.document(NAME)
    document["siblings"][0]["size"] = size
    model.answer = json.dumps(document).encode()
    assert "did not answer as a model hub" in refusal(SetupError)


@pytest.mark.parametrize("said", ["bytes 5-9/10", "bytes 999999999-1/2", "bytes 1-0/0"])
def test_a_hub_that_sends_another_part_than_the_whole_is_given_up(hub, model, said):
    model.other_range = dict.fromkeys(model.files, said)
    refusal(SetupError)
    assert len(hub.requests) < 20


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1", "ftp://mirror/x", "file:///etc/passwd", "http://", "http://:80/", "http://host:99999/",
        "http://host:0/", "http://host:x/", f"http://{'a' * 64}.example/", "http://a..b/", "http://ex ample/",
        "javascript:x", "?again", "http://127.0.0.1:1\t/", f"http://{'b' * 5000}/", "http://%00/", "http://xn--\xff/",
    ],
)  # fmt: skip
def test_redirects_to_nonsense_are_given_up(hub, model, location):
    model.location = location
    refusal(SetupError)
    assert len(hub.requests) < 80


@pytest.mark.parametrize(
    "address",
    [f"http://{'a' * 64}", "http://a..b", "http://host:99999", "http://*", "http://..", f"http://{'ä' * 300}",
     "http://exa mple", "http://xn--\xff", f"http://{'b.' * 3000}c"],
)  # fmt: skip
def test_names_that_no_hub_has(hub, monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    refusal(SetupError)


@pytest.mark.timeout(60)
def test_an_answer_without_end_can_be_canceled(model):
    model.slow_answer_s = 0.05
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(StoppedError):
        fetch(NAME, canceled=stop.is_set)


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
    for address in ("mirror.example", "http://[::1"):
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert address in refusal(UsageError)


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


@pytest.mark.full
def test_offline_says_when_the_model_is_here(model, monkeypatch):
    folder = fetch(NAME)
    monkeypatch.setenv("BURNISH_OFFLINE", "1")
    with pytest.raises(SetupError, match="already on this machine"):
        fetch(NAME)
    assert open_model(NAME).folder == folder
