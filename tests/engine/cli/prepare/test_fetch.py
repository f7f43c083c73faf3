"""`burnish models fetch` as a person meets it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.hub import download, download_queue

from support.hubs.hub_server import HubServer
from support.models.tiny import make_llama

NAME = "Bench/Tiny-Llama"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("hosted"), hidden_size=128)


@pytest.fixture
def hub(monkeypatch, tiny):
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("BURNISH_OFFLINE", "0")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(download, "FIRST_WAIT_S", 0.01)
        server.host(NAME, tiny)
        yield server


def test_license_size_and_place_are_shown(hub, capsys):
    assert main(["models", "fetch", NAME]) == 0
    shown = capsys.readouterr().out
    assert "License: apache-2.0" in shown
    assert str(fetched_model_dir(NAME)) in shown
    assert "100 %" in shown
    assert main(["models", "fetch", NAME]) == 0
    assert "Already here" in capsys.readouterr().out


def test_a_wait_for_a_busy_hub_is_told(hub, capsys):
    hub.models[NAME].busy = [(503, None)]
    assert main(["models", "fetch", NAME]) == 0
    assert "Waiting" in capsys.readouterr().out


def test_json_is_one_document(hub, capsys):
    assert main(["models", "fetch", NAME, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["commit"] == hub.models[NAME].commit
    assert "model.safetensors" in {file["name"] for file in document["files"]}


def test_gated_models_and_tokens(hub, capsys, monkeypatch):
    hub.models[NAME].gated, hub.models[NAME].admitted = "auto", ("hf_good",)
    assert main(["models", "fetch", NAME]) == 12
    assert "accept its terms" in capsys.readouterr().err
    assert main(["models", "fetch", NAME, "--token-from-env", "hf_good"]) == 2
    assert "not the token itself" in capsys.readouterr().err
    monkeypatch.setenv("MY_TOKEN", "hf_good")
    assert main(["models", "fetch", NAME, "--token-from-env", "MY_TOKEN"]) == 0
    assert "Gated" in capsys.readouterr().out


def test_errors_are_paragraphs_with_their_codes(hub, capsys, monkeypatch):
    assert main(["models", "fetch", "Bench/Typo"]) == 2
    assert main(["models", "fetch", "nonsense"]) == 2
    monkeypatch.setenv("BURNISH_OFFLINE", "1")
    assert main(["models", "fetch", NAME]) == 12
    assert "bug" not in capsys.readouterr().err


def test_a_name_of_the_catalog_may_be_short(hub, tiny, capsys):
    hub.host("Qwen/Qwen3-0.6B", tiny)
    assert main(["models", "fetch", "qwen3-0.6b"]) == 0
    assert fetched_model_dir("Qwen/Qwen3-0.6B").is_dir()


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one child alone")
def test_ctrl_c_stops_and_the_next_time_goes_on(hub, capsys):
    hub.models[NAME].pause_s = 0.05
    code = f"import sys; from burnish_engine.cli.main import main; sys.exit(main(['models', 'fetch', {NAME!r}]))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while hub.sent("model.safetensors") < 100_000 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 20
    assert "resumes where it stopped" in told
    hub.models[NAME].pause_s = 0.0
    assert main(["models", "fetch", NAME]) == 0
    assert "of them here" in capsys.readouterr().out


def test_queued_downloads_are_listed_and_carried_out(hub, capsys, monkeypatch):
    monkeypatch.setattr(download_queue, "start_detached", lambda *_arguments, **_more: os.getpid())  # nobody else does
    assert main(["models", "downloads"]) == 0
    assert NAME not in capsys.readouterr().out
    for name in (NAME, "Bench/Not-There"):
        download_queue.add_download(name)
    assert main(["models", "downloads"]) == 0
    assert f"{NAME}  queued" in capsys.readouterr().out
    assert main(["models", "downloads", "--work", "--json"]) == 0
    done, failed = json.loads(capsys.readouterr().out)
    assert (done["name"], done["status"]) == (NAME, "finished")
    assert done["done"] == done["total"] > 0
    assert fetched_model_dir(NAME).is_dir()
    assert failed["status"] == "failed"
    assert main(["models", "downloads"]) == 0
    assert "Bench/Not-There" in failed["message"]
    assert "knows no public model" in " ".join(capsys.readouterr().out.split())
