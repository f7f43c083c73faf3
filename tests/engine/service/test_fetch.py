"""Downloads through the server: progress, cancel, going on, and the model at the end."""

import pytest

from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.contract.serve.messages import Canceled, Progress, Result
from burnish_engine.hub.manifest import read_manifest

from support.hub_server import HubServer
from support.serve import Server
from support.tiny import make_llama

NAME = "someone/tiny-model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("hosted"), hidden_size=256, intermediate_size=512)


@pytest.fixture
def hub(monkeypatch):
    with HubServer() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("BURNISH_OFFLINE", "0")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def test_a_model_is_fetched_and_described(hub, folder):
    hub.host(NAME, folder)
    with Server() as server:
        assert "models fetch" in server.failure("model", path=NAME).remedy
        *before, last = server.until_end(server.send("fetch", name=NAME))
        assert isinstance(last, Result), last
        assert (last.model.path, last.model.family, last.model.license) == (NAME, "llama", "apache-2.0")
        assert last.model.parameters > 100_000
        shares = [message.done for message in before if isinstance(message, Progress) and message.total]
        assert shares
        assert shares == sorted(shares)
        assert server.result("model", path=NAME).model == last.model


def test_a_download_can_be_canceled_and_goes_on(hub, folder):
    """With the catalog's license, as the model's page names none."""
    name = "Qwen/Qwen2.5-3B-Instruct"
    model = hub.host(name, folder, license="", card={})
    model.pause_s = 0.05
    with Server() as server:
        request_id = server.send("fetch", name=name)
        while not (isinstance(message := server.next(), Progress) and message.done):
            pass
        server.send("cancel", request=request_id)
        assert isinstance(server.until_end(request_id)[-1], Canceled)
        model.pause_s = 0.0
        fetched = server.result("fetch", name=name).model
        assert (fetched.family, fetched.license) == ("llama", "qwen-research")
    assert read_manifest(fetched_model_dir(name)).license == "qwen-research", "what is kept with the files too"


def test_what_cannot_be_fetched_is_told(hub, folder):
    hub.host(NAME, folder)
    with Server() as server:
        assert "someone/other" in server.failure("fetch", name="someone/other").what
        assert server.failure("fetch", name="no name").exit_code == 2
    with Server(BURNISH_OFFLINE="1") as server:
        assert "offline" in server.failure("fetch", name=NAME).what.lower()
