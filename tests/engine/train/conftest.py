"""Tiny models shared by the training tests."""

import pytest

from support.tiny import make_llama


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    """Folder of a tiny Llama with tokenizer."""
    return make_llama(tmp_path_factory.mktemp("tiny") / "base")
