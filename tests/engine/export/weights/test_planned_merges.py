"""A plan says about merging an adapter what the export does, whatever architecture the model has."""

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from burnish_engine.advise.plan.exports import exports_of, planned_exports
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.model_shape import measured_spec
from burnish_engine.models.transformers_path.plain import attach_adapter, trainable_parameters
from burnish_engine.radar.small_model import small_model

from support.models.tiny import make_tokenizer

TARGETS = ["all-linear"]
SOME = {
    "hrm_text": (TARGETS, False),  # its files hold gate and up, and q, k and v, as one tensor
    "olmo2": (TARGETS, True),
    "jetmoe": (["auto"], False),  # its experts are stacks that are called weights, as those of linear layers
}


def saved_base(name, folder):
    """The opened model; None where transformers does not build it small."""
    try:
        small_model(name).save_pretrained(folder)
    except Exception:  # noqa: BLE001  transformers does not make this one small
        return None
    make_tokenizer(folder)
    return open_model(str(folder))


def promised_and_done(source, targets, folder):
    """Whether merging works: by the plan, by the finished adapter, and when it is done; None without an adapter."""
    section = AdapterSection(rank=2, targets=targets)
    try:
        tuned = attach_adapter(AutoModelForCausalLM.from_pretrained(source.folder), section, seed=0)
    except UsageError:
        return None
    for _, value in trainable_parameters(tuned):
        torch.nn.init.normal_(value, std=0.1)
    shutil.rmtree(folder, ignore_errors=True)
    tuned.save_pretrained(str(folder))
    spec = source.spec or measured_spec(source.config)
    planned = planned_exports(source.config, spec, section)
    finished = exports_of(source.config, spec, section, trained=folder)
    try:
        merged = MergedWeights(source, folder)
        for tensor in merged.names:
            merged.load(tensor)
        merged.check_all_used()
        done = True
    except UsageError:
        done = False
    return [one.works for found in (planned, finished) for one in found if one.kind == "safetensors"] + [done]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", SOME)
def test_a_merge_is_planned_as_it_is_done(name, tmp_path):
    source, (targets, works) = saved_base(name, tmp_path / "base"), SOME[name]
    assert promised_and_done(source, targets, tmp_path / "adapter") == [works] * 3


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_a_merge_is_planned_as_it_is_done_in_every_architecture(name, tmp_path):
    if (source := saved_base(name, tmp_path / "base")) is None:
        pytest.skip("transformers does not build it small")
    for targets in (TARGETS, ["auto"]):
        found = promised_and_done(source, targets, tmp_path / "adapter")
        assert found is None or len(set(found)) == 1, (targets, found)
