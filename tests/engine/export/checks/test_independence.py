"""What a file is held to does not come from what it was made of: a fault in merging shows, and nothing is left out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import FidelityError, SetupError
from burnish_engine.export import job
from burnish_engine.export.checks.trained_weights import Origin, TrainedWeights
from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.verify.reference import ExportedModel, compute_reference, render_probes
from burnish_engine.export.weights import merge
from burnish_engine.export.weights.adapter_weights import LowRankUpdate
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

from support.models.export import make_adapter, rows

pytestmark = pytest.mark.usefixtures("short_replies")


def forget_the_adapter(self, weight):
    return weight


def double_the_adapter(self, weight):
    return weight + 2 * self.scale * (self.b @ self.a)


@pytest.mark.full
def test_the_reference_does_not_come_from_merged_weights(wide, wide_adapter, monkeypatch):
    tokenizer = load_tokenizer(wide)
    probes = render_probes(tokenizer, PROBE_CHATS[:1])
    right = compute_reference(ExportedModel(wide, wide_adapter, rows(wide, 1)), tokenizer, probes)
    base = compute_reference(ExportedModel(wide, None, rows(wide, 1)), tokenizer, probes)
    assert right.base_loss == pytest.approx(base.tuned_loss, abs=1e-5)
    assert abs(right.tuned_loss - right.base_loss) > 1e-3
    monkeypatch.setattr(LowRankUpdate, "merged", forget_the_adapter)
    monkeypatch.setattr(merge.MergedWeights, "load", lambda *_: pytest.fail("the merged weights were read"))
    again = compute_reference(ExportedModel(wide, wide_adapter, rows(wide, 1)), tokenizer, probes)
    assert np.abs(right.log_probs[0] - base.log_probs[0]).max() > 0.01
    np.testing.assert_array_equal(right.log_probs[0], again.log_probs[0])


@pytest.mark.full
@pytest.mark.parametrize("fault", [forget_the_adapter, double_the_adapter])
def test_a_fault_in_merging_shows_in_tensors_and_in_probabilities(wide, wide_adapter, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(LowRankUpdate, "merged", fault)
    with pytest.raises(FidelityError) as caught:
        export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), threads=1), tmp_path, "x", ["F16"])
    assert "hold other numbers than the trained model" in str(caught.value)
    assert "mean KL divergence" in str(caught.value)


@pytest.mark.full
def test_an_adapter_that_did_not_go_into_the_file_is_refused(wide, wide_adapter, tmp_path, monkeypatch):
    real, base = job.plan_gguf, MergedWeights(wide, None)

    def without_one(*arguments, **options):
        plan = real(*arguments, **options)
        name = "model.layers.1.mlp.down_proj.weight"
        tensors = [
            replace(one, make=lambda: base.load(name)) if one.name == "blk.1.ffn_down.weight" else one
            for one in plan.tensors
        ]
        return replace(plan, tensors=tensors)

    monkeypatch.setattr(job, "plan_gguf", without_one)
    with pytest.raises(SetupError, match=r"1 tensors of the adapter were not used, first model\.layers\.1\.mlp\.down"):
        export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["F16"])
    assert not list(tmp_path.glob("*.gguf"))


@pytest.mark.parametrize("method", ["lora", "rslora", "dora"])
def test_both_ways_to_merge_agree(wide, tmp_path, method):
    from peft import LoraConfig

    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "down_proj", "embed_tokens"], task_type="CAUSAL_LM",
        rank_pattern={"layers.1.self_attn.q_proj": 2}, alpha_pattern={"down_proj": 32},
        use_rslora=method == "rslora", use_dora=method == "dora",
    )  # fmt: skip
    if method == "dora":
        config.target_modules.discard("embed_tokens")
    adapter = make_adapter(wide, tmp_path / "adapter", config=config)
    ours, theirs = MergedWeights(wide, adapter), TrainedWeights(Origin(wide, adapter))
    changed = [name for name in theirs.names if theirs.is_changed(name)]
    assert len(changed) == (4 if method == "dora" else 5)
    for name in changed:
        torch.testing.assert_close(theirs.load(name), ours.load(name), rtol=1e-5, atol=1e-6)
