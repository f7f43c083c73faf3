"""Sabotage: the gate refuses the file and names what is wrong."""

from dataclasses import replace

import pytest
import torch

from burnish_engine.contract.errors import FidelityError
from burnish_engine.export import job
from burnish_engine.export.gguf.planned_tensors import PlannedTensor
from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.models.families import FAMILIES
from burnish_engine.models.families.qwen import QWEN3

from support.models.export import rows, source_with
from support.models.small_families import make_small

pytestmark = pytest.mark.usefixtures("short_replies")


def sabotage(monkeypatch, change):
    """Let the writer be handed another plan than was made."""
    real = job.plan_gguf
    monkeypatch.setattr(job, "plan_gguf", lambda *args, **options: change(real(*args, **options)))


def refused(source, adapter, out, quants=("Q8_0",), **options):
    """Export, which must be refused with exit code 14 and leave no file; what it says."""
    with pytest.raises(FidelityError) as caught:
        export_gguf(
            ExportedModel(source, adapter, held_out=rows(source, 3), threads=1), out, "x", list(quants), **options
        )
    assert caught.value.exit_code == 14
    assert [path.name for path in out.iterdir()] == ["fidelity.json"]
    return str(caught.value)


def with_metadata(**changes):
    return lambda plan: replace(
        plan, metadata={**plan.metadata, **{k.replace("__", "."): v for k, v in changes.items()}}
    )


@pytest.mark.full
def test_a_missing_permutation_is_named(wide, wide_adapter, tmp_path, monkeypatch):
    monkeypatch.setattr("burnish_engine.models.checkpoint.gguf_file.changes.permute_rows", lambda weight, heads: weight)
    text = refused(wide, wide_adapter, tmp_path)
    assert "blk.0.attn_q.weight" in text
    assert "the permutation of Q and K is missing or wrong" in text
    assert "other numbers" not in text


def test_a_permutation_where_none_belongs_is_named(tmp_path, monkeypatch):
    permuting = replace(QWEN3, gguf=replace(QWEN3.gguf, interleaved=True))
    monkeypatch.setitem(FAMILIES, "qwen3", permuting)
    source = make_small("Qwen/Qwen3-0.6B", tmp_path / "base")
    text = refused(source, None, tmp_path / "out")
    assert "the permutation of Q and K is missing or wrong" in text


@pytest.mark.full
def test_a_wrong_rope_base_is_named(wide, wide_adapter, tmp_path, monkeypatch):
    sabotage(monkeypatch, with_metadata(rope__freq_base=10_100.0))
    text = refused(wide, wide_adapter, tmp_path)
    assert "Its rope base (rope.freq_base) is 10100; the model's is 10000." in text
    assert "other numbers" not in text


@pytest.mark.full
def test_a_wrong_rope_base_of_local_layers_is_named(tmp_path, monkeypatch):
    source = make_small("google/gemma-3-270m", tmp_path / "base")
    sabotage(monkeypatch, with_metadata(rope__freq_base_swa=1_000_000.0))
    assert "Its rope base of local layers (rope.freq_base_swa) is 1e+06" in refused(source, None, tmp_path / "out")


def test_a_wrong_pre_tokenizer_is_named(tmp_path, monkeypatch):
    source = source_with(tmp_path, "digits")
    sabotage(monkeypatch, lambda plan: replace(plan, pre_tokenizer="llama-bpe"))
    text = refused(source, None, tmp_path / "out")
    assert "Its pre-tokenizer is 'llama-bpe'; 'smollm' splits text as the model does." in text
    assert "texts differently, first" in text


@pytest.mark.full
def test_a_wrong_stop_token_is_named(wide, wide_adapter, tmp_path, monkeypatch):
    def change(plan):
        special = {**plan.vocabulary.special, "eos_token_id": 5}
        return replace(plan, vocabulary=replace(plan.vocabulary, special=special))

    sabotage(monkeypatch, change)
    text = refused(wide, wide_adapter, tmp_path)
    assert "the template ends turns with '<|im_end|>'" in text


def test_norms_written_without_the_one_are_named(tmp_path, monkeypatch):
    source = make_small("google/gemma-3-270m", tmp_path / "base")

    def lower(tensor):
        return tensor if "norm" not in tensor.name else replace(tensor, make=lambda: tensor.make() - 1.0)

    sabotage(monkeypatch, lambda plan: replace(plan, tensors=[lower(tensor) for tensor in plan.tensors]))
    assert "norms that multiply by 1 + weight are written wrong" in refused(source, None, tmp_path / "out")


def test_a_forgotten_adapter_and_a_lost_tensor_are_named(wide, wide_adapter, tmp_path, monkeypatch):
    def zero(tensor):
        if tensor.name != "blk.1.ffn_down.weight":
            return tensor
        return PlannedTensor(tensor.name, tensor.shape, lambda: torch.zeros(tensor.shape), tensor.full_precision)

    sabotage(monkeypatch, lambda plan: replace(plan, tensors=[zero(tensor) for tensor in plan.tensors]))
    text = refused(wide, None, tmp_path)
    assert "blk.1.ffn_down.weight holds zeros" in text


@pytest.mark.full
def test_a_quantized_file_is_diagnosed_too(wide, wide_adapter, tmp_path, monkeypatch):
    export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), threads=1), tmp_path, "x", ["Q4_K_M"])
    good = verify_file(tmp_path / "x-Q4_K_M.gguf", ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), threads=1))
    assert good.passed
    from gguf import GGUFReader

    reader = GGUFReader(tmp_path / "x-Q4_K_M.gguf", "r+")
    field = reader.fields["llama.rope.freq_base"]
    field.parts[field.data[0]][0] = 20_000.0
    reader.data.flush()
    del reader
    report = verify_file(
        tmp_path / "x-Q4_K_M.gguf", ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), threads=1)
    )
    assert not report.passed
    assert any("rope base" in problem for problem in report.files[0].problems)
