"""Small models for the export tests; the one that talks is trained for a few seconds."""

import pytest
import torch

from burnish_engine.models.checkpoint.source import open_model

from support.models.export import make_adapter, make_talking, write_16_bit
from support.models.tiny import conversations, make_llama


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def wide(tmp_path_factory):
    """A Llama whose rows fill every quantization block: hidden 256, grouped heads, tied."""
    folder = make_llama(
        tmp_path_factory.mktemp("wide") / "base", hidden_size=256, intermediate_size=512, num_attention_heads=4
    )
    return open_model(str(folder))


@pytest.fixture(scope="session")
def wide_adapter(wide, tmp_path_factory):
    """A LoRA adapter on it."""
    return make_adapter(wide, tmp_path_factory.mktemp("wide-adapter") / "adapter")


@pytest.fixture(scope="session")
def wide_f16(wide, wide_adapter, tmp_path_factory):
    """The F16 GGUF of both."""
    return write_16_bit(wide, wide_adapter, tmp_path_factory.mktemp("wide-f16"))


@pytest.fixture(scope="session")
def talking(tmp_path_factory):
    """A tiny Llama that has learned to answer and to stop. Its rows of 96 do not fill blocks of 256."""
    return make_talking(tmp_path_factory.mktemp("talking") / "base")


@pytest.fixture
def talking_chats():
    """Conversations it knows the answers to."""
    return [[row["messages"][0]] for row in conversations(6, offset=5)]
