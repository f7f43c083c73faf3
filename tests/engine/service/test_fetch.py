"""Downloads through the server: progress, cancel, continuing, and the model at the end."""

import hashlib

import pytest

from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.serve.messages import Canceled, Progress, Result
from burnish_engine.hub.manifest import read_manifest

from support.app.serve import Server, wait_for
from support.hubs.hub_server import HubServer
from support.models.tiny import make_llama

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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_what_cannot_be_fetched_is_told(hub, folder):
    hub.host(NAME, folder)
    with Server() as server:
        assert "someone/other" in server.failure("fetch", name="someone/other").what
        assert server.failure("fetch", name="no name").exit_code == 2
    with Server(BURNISH_OFFLINE="1") as server:
        assert "offline" in server.failure("fetch", name=NAME).what.lower()


@pytest.mark.full
def test_downloads_and_search_are_answered(hub, folder, burnish_home):
    hub.host(NAME, folder)
    hub.host("someone/gated-model", folder, gated="auto", admitted=("hf_secret",))
    with Server(HF_HUB_CACHE=str(burnish_home / "none"), OLLAMA_MODELS=str(burnish_home / "none")) as server:
        assert server.result("downloads").downloads == []
        found = {one.name: one for one in server.result("search_hub", query="someone").hub_models}
        assert found[NAME].verdict == "good"
        assert found["someone/gated-model"].verdict == "unknown"
        server.result("download", name=NAME)
        server.result("download", name="someone/gated-model", token="hf_secret")
    with Server(HF_HUB_CACHE=str(burnish_home / "none"), OLLAMA_MODELS=str(burnish_home / "none")) as server:
        wait_for(lambda: {one.status for one in server.result("downloads").downloads} == {"finished"})
        assert server.result("check_files", path=NAME).integrity.checked > 3
        assert {one.name for one in server.result("local_models").local_models} == {NAME, "someone/gated-model"}
        assert server.result("download", name=NAME, do="cancel").downloads[0].name == "someone/gated-model"
        assert "downloads" in server.failure("download", name=NAME, do="pause").what
    kept = [file for file in burnish_home.rglob("*") if file.is_file()]
    assert all(b"hf_secret" not in file.read_bytes() for file in kept)


@pytest.mark.full
def test_an_adapter_is_described_with_its_base(finished_run):
    with Server() as server:
        found = server.result("adapter", path=str(finished_run)).adapter
        assert found.base_path == parse_recipe((finished_run / "recipe.toml").read_text(encoding="utf-8")).model.path
        weights = finished_run / "adapter" / "adapter_model.safetensors"
        assert found.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
        assert found.rank == parse_recipe((finished_run / "recipe.toml").read_text(encoding="utf-8")).adapter.rank
        alone = server.result("adapter", path=str(finished_run / "adapter")).adapter
        assert (alone.rank, alone.sha256) == (found.rank, found.sha256)
        assert server.failure("adapter", path=str(finished_run / "events.jsonl")).exit_code == 2
        assert server.failure("adapter", path="").exit_code == 2
