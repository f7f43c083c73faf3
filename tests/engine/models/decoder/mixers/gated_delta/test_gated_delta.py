"""Gated delta nets beside transformers and PEFT in documents around a chunk's length, and what they declare."""

import pytest
import torch

from burnish_engine.advise.predict.fast_shape import stacks
from burnish_engine.bench.shapes import CONFIGS, shape
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.layer_tensors import TOKENS
from burnish_engine.models.decoder.mixers.declared import declared_mixer
from burnish_engine.models.decoder.mixers.gated_delta.cache import row_bytes
from burnish_kernels.delta_rule.sizes import CHUNK, Sizes, workspace_bytes

from support.models import parity, tiny_models

BATCH = parity.micro_batch((1, 70, 2, 130, 3, 64, 37, 1, 8))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny checkpoint and an adapter of it."""
    base = tiny_models.make("qwen3-5", tmp_path_factory.mktemp("delta") / "base")
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5)


@pytest.fixture
def ours(folders):
    return parity.fast(*folders)


@pytest.mark.full
def test_gradients_are_those_of_peft(folders, ours):
    loss, gradients = parity.peft_gradients(parity.peft(*folders), BATCH)
    our_loss, found = ours.gradients(BATCH)
    assert our_loss == pytest.approx(loss, rel=1e-5)
    assert parity.worst(found, gradients) < 1e-4
    assert parity.distance(found, gradients) < 1e-5


def test_packed_documents_are_as_each_alone(ours):
    alone = torch.cat([ours.logits(one) for one in parity.single(BATCH)])
    assert parity.same_logits(ours.logits(BATCH), alone, 2e-5)
    total = None
    for one in parity.single(BATCH):
        _, found = ours.gradients(one)
        share = {name: value * one.supervised_tokens / BATCH.supervised_tokens for name, value in found.items()}
        total = share if total is None else {name: total[name] + value for name, value in share.items()}
    assert parity.worst(ours.gradients(BATCH)[1], total) < 2e-5


@pytest.mark.parametrize("name", [name for name in CONFIGS if shape(name).delta])
def test_declared_scratch_is_what_kernels_ask_for(name):
    spec = shape(name)
    delta, width = spec.delta, 2
    sizes = Sizes(delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim)
    made = stacks(spec, AdapterSection(), spec.layers[0])
    tensors = {one.name: one for one in declared_mixer(spec, spec.layers[0]).tensors(spec, made)}
    for phase, backward in (("forward", False), ("backward", True)):
        parts = [tensors["gate_scratch"], tensors[f"{phase}_scratch"]]
        assert all(one.shape[0] == TOKENS for one in parts)
        declared = CHUNK * sum(one.width * one.number_bytes(width) for one in parts)
        assert declared == workspace_bytes(CHUNK, sizes, torch.bfloat16, backward=backward)


def test_a_row_remembers_states_in_fp32_and_inputs_of_three_tokens():
    assert row_bytes(shape("qwen3.5-4b"), torch.bfloat16) == 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert row_bytes(shape("qwen3-0.6b"), torch.bfloat16) == 0
