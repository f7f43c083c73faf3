import pytest

from burnish_engine.hub import download

from support.hubs.fetching import NAME
from support.hubs.hub_server import HubServer
from support.models.tiny import make_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A whole model in a folder, with files that no training needs beside it."""
    folder = make_llama(tmp_path_factory.mktemp("hosted"), hidden_size=256, intermediate_size=512)
    (folder / "README.md").write_text("# Tiny\n", encoding="utf-8")
    (folder / "LICENSE").write_text("Do as you like.\n", encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_tiny.py").write_text("raise SystemExit\n", encoding="utf-8")
    (folder / "consolidated.safetensors").write_bytes(b"the same again")
    return folder


@pytest.fixture
def hub(monkeypatch):
    """A hub that the process may reach; nothing else is configured."""
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("BURNISH_OFFLINE", "0")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(download, "FIRST_WAIT_S", 0.01)
        yield server


@pytest.fixture
def model(hub, tiny):
    """The tiny model as it is hosted."""
    return hub.host(NAME, tiny)
