"""4-bit runs: the adapter added to the 16-bit base, or to the rounded weights it was trained on; both are measured."""

import pytest
import torch
from peft import PeftModel

from burnish_engine.export.checks.trained_weights import Origin, TrainedWeights
from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.export.weights.folders import export_safetensors
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.export.weights.nf4_merge import round_model, round_trip, rounded_names
from burnish_engine.models.checkpoint.gguf_file.header import MERGED_ONTO, read_header
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, gguf_kl, rows, tuned_model
from support.models.small_mixtures import adapt_experts, make_mixture

pytestmark = pytest.mark.usefixtures("short_replies")


def options_for(source, **more):
    return ReferenceOptions(in_4_bits=rounded_names(source), **more)


def as_trained(source, adapter):
    """Base in NF4 and back, with the adapter beside it."""
    model = tuned_model(source, adapter)
    round_model(model, rounded_names(source))
    return model


def test_every_linear_layer_but_the_head_is_rounded(wide):
    names = rounded_names(wide)
    assert len(names) == 7 * wide.spec.num_layers
    assert "model.embed_tokens.weight" not in names
    weights = MergedWeights(wide, None, names)
    exact = MergedWeights(wide, None)
    name = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(weights.load(name), round_trip(exact.load(name)), rtol=0, atol=0)
    assert not torch.equal(weights.load(name), exact.load(name))
    norm = "model.norm.weight"
    assert torch.equal(weights.load(norm), exact.load(norm))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("onto_rounded", [False, True])
def test_both_merges_are_exact_and_both_are_measured(wide, wide_adapter, tmp_path, onto_rounded):
    report = export_gguf(
        ExportedModel(
            wide, wide_adapter, held_out=rows(wide, 3), threads=1, options=options_for(wide, onto_rounded=onto_rounded)
        ),
        tmp_path,
        "x",
        ["F16"],
    )
    assert report.passed
    assert report.files[0].mean_kl < 1e-6
    note = next(note for note in report.notes if "4-bit" in note)
    assert "Held-out loss as exported" in note
    row = rows(wide, 1)[0]
    near, far = tuned_model(wide, wide_adapter), as_trained(wide, wide_adapter)
    if onto_rounded:
        near, far = far, near
    path = tmp_path / "x-F16.gguf"
    assert gguf_kl(path, near, row) < 1e-6 < 1e-5 < gguf_kl(path, far, row)


@pytest.mark.full
@pytest.mark.parametrize("onto_rounded", [False, True])
def test_a_file_says_what_it_was_merged_onto_whatever_the_recipe_says(wide, wide_adapter, tmp_path, onto_rounded):
    """As after `burnish export --merge-onto`, of which the run's recipe knows nothing."""
    export_gguf(
        ExportedModel(
            wide, wide_adapter, held_out=rows(wide, 3), threads=1, options=options_for(wide, onto_rounded=onto_rounded)
        ),
        tmp_path,
        "x",
        ["F16"],
    )
    path = tmp_path / "x-F16.gguf"
    assert (read_header(path).metadata.get(MERGED_ONTO) == "dequantized") == onto_rounded
    for said in (False, True):
        found = verify_file(
            path,
            ExportedModel(
                wide, wide_adapter, held_out=rows(wide, 3), threads=1, options=options_for(wide, onto_rounded=said)
            ),
        )
        assert found.passed
        assert found.files[0].mean_kl < 1e-6
    assert Origin(wide, wide_adapter).rounded == frozenset()


@pytest.mark.full
def test_folders_can_be_merged_onto_rounded_weights(wide, wide_adapter, tmp_path):
    from safetensors.torch import load_file

    export_safetensors(wide, wide_adapter, tmp_path / "a", rounded=rounded_names(wide))
    merged = load_file(tmp_path / "a" / "model.safetensors")
    wanted = MergedWeights(wide, wide_adapter, rounded_names(wide)).load("model.layers.1.self_attn.q_proj.weight")
    torch.testing.assert_close(merged["model.layers.1.self_attn.q_proj.weight"].float(), wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b"])
def test_experts_of_the_fast_engine_are_rounded_matrix_by_matrix(name, tmp_path):
    source = make_mixture(name, tmp_path / "base")
    adapter, names = adapt_experts(source, tmp_path / "adapter"), rounded_names(source, experts=True)
    assert {one for one in names if ".experts." in one} == MergedWeights(source, None).stacks.keys()
    assert not any(".experts." in one for one in rounded_names(source))
    model = load_base(source, "fp32", CPU)
    round_model(model, names)
    wanted = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload().state_dict()
    weights, trained = MergedWeights(source, adapter, names), TrainedWeights(Origin(source, adapter, names))
    expected = trained.experts.expected()
    for stack in weights.stacks.values():
        whole = wanted[stack.path][1].T if stack.is_transposed else wanted[stack.path][1]
        for part in stack.parts:
            found = weights.load_expert(stack, 1, part)
            torch.testing.assert_close(found, whole[stack.rows(part)], rtol=1e-5, atol=1e-6)
            checked = expected[f"blk.{stack.stack.layer}.ffn_{part}_exps.weight"].matrices[1]()
            torch.testing.assert_close(checked, found, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_experts_in_mxfp4_are_never_rounded_again(tmp_path):
    source = make_mixture("openai/gpt-oss-20b", tmp_path / "base", mxfp4=True)
    assert not any(".experts." in name for name in rounded_names(source, experts=True))
