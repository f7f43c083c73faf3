"""Export as folders: what transformers loads again, shards, and refusals."""

import errno
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from burnish_engine.contract.errors import FidelityError, NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.export.weights import folders
from burnish_engine.export.weights.folders import export_adapter, export_safetensors
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, edit_json, make_model, tuned_model

IDS = torch.arange(40).reshape(1, 40)


@pytest.fixture(scope="module")
def bf16_base(wide, tmp_path_factory):
    """The wide model in bf16, with files that belong to it."""
    folder = tmp_path_factory.mktemp("bf16") / "base"
    shutil.copytree(wide.folder, folder)
    load_base(wide, "bf16", CPU).save_pretrained(folder)
    (folder / "LICENSE").write_text("free")
    (folder / "weights.bin").write_bytes(b"pickle")
    return open_model(str(folder))


@pytest.mark.parametrize("shard_bytes", [4_000_000_000, 300_000])
def test_the_folder_is_the_trained_model(bf16_base, wide_adapter, tmp_path, shard_bytes):
    seen = []
    out = export_safetensors(
        bf16_base, wide_adapter, tmp_path / "merged", shard_bytes=shard_bytes,
        progress=lambda _what, share: seen.append(share),
    )  # fmt: skip
    merged = open_model(str(out))
    assert (len(list(out.glob("*.safetensors"))) > 1) == (shard_bytes < 1_000_000)
    with torch.no_grad():
        wanted = tuned_model(bf16_base, wide_adapter)(IDS).logits
        got = load_base(merged, "fp32", CPU)(IDS).logits
    assert (wanted - got).abs().max() < 0.05  # one rounding to bf16
    for file in out.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            assert {opened.get_slice(name).get_dtype() for name in opened.keys()} == {"BF16"}  # noqa: SIM118
    assert load_tokenizer(merged).chat_template == load_tokenizer(bf16_base).chat_template
    assert (out / "LICENSE").read_text() == "free"
    assert not (out / "weights.bin").exists()
    assert seen[-1] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]


def test_an_adapter_that_did_not_go_into_the_folder_is_refused(wide, wide_adapter, tmp_path, monkeypatch):
    write, base, forgotten = folders._bytes_of, MergedWeights(wide, None), "model.layers.1.mlp.down_proj.weight"
    monkeypatch.setattr(folders, "_bytes_of", lambda weights, name: write(base if name == forgotten else weights, name))
    with pytest.raises(SetupError, match=r"1 tensors of the adapter were not used, first model\.layers\.1\.mlp\.down"):
        export_safetensors(wide, wide_adapter, tmp_path / "merged")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_fp32_bases_stay_exact(wide, wide_adapter, tmp_path):
    merged = open_model(str(export_safetensors(wide, wide_adapter, tmp_path / "merged")))
    with torch.no_grad():
        wanted, got = tuned_model(wide, wide_adapter)(IDS).logits, load_base(merged, "fp32", CPU)(IDS).logits
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
    assert (merged.folder / "config.json").read_bytes() == (wide.folder / "config.json").read_bytes()


def test_f16_overflow_is_refused(tmp_path):
    source = make_model(tmp_path / "base", "llama")
    model = load_base(source, "fp32", CPU).half()
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[0, 0] = 60000.0
    model.save_pretrained(source.folder)
    from support.models.export import make_adapter

    adapter = make_adapter(source, tmp_path / "adapter", targets=["down_proj"])
    from safetensors.torch import load_file, save_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors = {name: value * 1000 for name, value in tensors.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(FidelityError, match="which F16 cannot hold"):
        export_safetensors(open_model(str(source.folder)), adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_folder_in_use_is_left_alone(wide, wide_adapter, tmp_path):
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        export_safetensors(wide, wide_adapter, tmp_path / "merged")
    with pytest.raises(UsageError, match="not empty"):
        export_adapter(wide_adapter, tmp_path / "merged")


def test_cancelling_leaves_nothing(wide, wide_adapter, tmp_path):
    shares = []
    with pytest.raises(StoppedError):
        export_safetensors(
            wide, wide_adapter, tmp_path / "merged",
            progress=lambda _what, share: shares.append(share), canceled=lambda: len(shares) > 3,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_no_space_before_and_while_writing(wide, wide_adapter, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _path: usage(9, 9, 5))
        with pytest.raises(NoSpaceError, match="The merged model needs"):
            export_safetensors(wide, wide_adapter, tmp_path / "merged")
        with pytest.raises(NoSpaceError, match="The adapter needs"):
            export_adapter(wide_adapter, tmp_path / "copy")

    opened = Path.open

    def full(path, mode="r", **options):
        if "w" in mode:
            raise OSError(errno.ENOSPC, "full")
        return opened(path, mode, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        export_safetensors(wide, wide_adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.full
def test_the_adapter_alone(wide, wide_adapter, tmp_path):
    out = export_adapter(wide_adapter, tmp_path / "copy")
    with torch.no_grad():
        assert torch.equal(tuned_model(wide, out)(IDS).logits, tuned_model(wide, wide_adapter)(IDS).logits)
    with pytest.raises(SetupError, match="holds no adapter"):
        export_adapter(tmp_path, tmp_path / "other")


def test_an_adapter_that_cannot_be_merged_is_copied_as_it_is(wide_adapter, tmp_path):
    """Such as one on fused experts, of which the plan promises that the adapter can be exported."""
    shutil.copytree(wide_adapter, tmp_path / "adapter")
    edit_json(tmp_path / "adapter" / "adapter_config.json", target_parameters=["mlp.experts.down_proj"])
    out = export_adapter(tmp_path / "adapter", tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".md"} == {
        name: (tmp_path / "adapter" / name).read_bytes()
        for name in ("adapter_config.json", "adapter_model.safetensors")
    }
