"""The whole export of a mixture with adapted experts: files with their proof, sizes that were predicted."""

import pytest

from burnish_engine.contract.errors import FidelityError
from burnish_engine.export.job import export_gguf
from burnish_engine.export.preflight import forecast_gguf
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.export.weights.adapter_weights import StackUpdate
from burnish_engine.models.checkpoint.gguf_file.header import read_header

from support.models.export import rows
from support.models.gguf_edit import edit_gguf
from support.models.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture

QWEN = "Qwen/Qwen3-30B-A3B"
QUANTS = ["F16", "Q8_0", "Q4_K_M"]
SOME = [QWEN, GPT_OSS]
EVERY = [*SOME, *(pytest.param(name, marks=pytest.mark.long) for name in PUBLISHED if name not in SOME)]


def exported(name, folder, **options):
    source = make_mixture(name, folder / "base", mxfp4=name == GPT_OSS, hidden=256, size=256)
    targets = ["q_proj", "down_proj"] if name == GPT_OSS else ["auto"]
    adapter = adapt_experts(source, folder / "adapter", targets=targets)
    model = ExportedModel(source, adapter, held_out=rows(source), threads=1, **options)
    report = export_gguf(model, folder / "out", "x", QUANTS)
    return source, adapter, report


@pytest.mark.full
@pytest.mark.parametrize("name", EVERY)
def test_every_file_is_proven(name, tmp_path):
    texts = rows(make_mixture(name, tmp_path / "texts"), 6)
    source, adapter, report = exported(name, tmp_path, options=ReferenceOptions(training=texts))
    assert report.passed
    assert [file.quant for file in report.files] == QUANTS
    assert report.files[0].mean_kl < report.files[2].mean_kl < 1.0
    assert [file.importance for file in report.files] == [False, False, True]
    assert any("Experts were weighed" in note for note in report.notes)
    assert any("rope" in note for note in report.notes) == (name == GPT_OSS)
    cost = forecast_gguf(source, adapter, "x", QUANTS, importance_tokens=report.importance_tokens)
    assert cost.sizes == {file.quant: file.bytes for file in report.files}


@pytest.mark.full
def test_gpt_oss_keeps_what_was_not_adapted(tmp_path):
    _, _, report = exported(GPT_OSS, tmp_path)
    for file in report.files:
        kinds = {one.name: one.type for one in read_header(tmp_path / "out" / file.file).tensors}
        assert kinds["blk.0.ffn_gate_exps.weight"] == kinds["blk.1.ffn_up_exps.weight"] == "MXFP4"
        assert kinds["blk.0.ffn_down_exps.weight"] != "MXFP4"
        assert file.quant == "F16" or any("stayed MXFP4" in text for text in file.fallbacks)


@pytest.mark.full
def test_a_file_is_verified_again_and_a_damaged_one_is_refused(tmp_path):
    source, adapter, _ = exported(QWEN, tmp_path)
    path = tmp_path / "out" / "x-Q8_0.gguf"
    assert verify_file(path, ExportedModel(source, adapter, held_out=rows(source, 1), threads=1)).passed

    def damage(held):
        held["blk.0.ffn_down_exps.weight"][4, 7, 2:34] ^= 0x55

    broken = edit_gguf(path, tmp_path / "broken.gguf", tensors=damage)
    report = verify_file(broken, ExportedModel(source, adapter, held_out=rows(source, 1), threads=1))
    assert not report.passed
    assert "row 7 of 256 of expert 4" in " ".join(report.files[0].problems)


@pytest.mark.full
def test_a_fault_in_merging_experts_shows(tmp_path, monkeypatch):
    real = StackUpdate.of_expert
    monkeypatch.setattr(StackUpdate, "of_expert", lambda self, expert, rows=slice(None): real(self, expert ^ 1, rows))
    with pytest.raises(FidelityError, match="_exps"):
        exported(QWEN, tmp_path)
