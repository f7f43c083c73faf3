"""Sizes of the fast engine's matrices, and of the pieces that its head is done in."""

import pytest
import torch

from burnish_engine.advise.predict.fast_shape import frozen_weights, head_chunk_tokens, is_fused, stacks
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.facts import LayerSpec
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_kernels.swiglu.adapted.tiles import can_fuse


@pytest.mark.parametrize(
    ("supervised", "rows"), [(1, 256), (256, 256), (257, 512), (4096, 4096), (4097, 2304), (10_000, 3584), (0, 256)]
)
def test_chunks_of_the_head_are_of_equal_size(supervised, rows):
    assert head_chunk_tokens(supervised, cuda=True) == rows
    assert head_chunk_tokens(supervised, cuda=False) == 256


@pytest.mark.parametrize("rank", [1, 16, 17, 64, 65, 200])
def test_the_activation_is_written_out_where_its_kernel_takes_no_such_rank(rank):
    section = AdapterSection(rank=rank)
    made = stacks(shape("qwen3-0.6b"), section, LayerSpec())
    padded = -(-rank // 16) * 16
    assert is_fused(made, section, cuda=True) == can_fuse([padded] * 3, torch.bfloat16)
    assert not is_fused(made, section, cuda=False)
    dropping = AdapterSection(rank=rank, dropout=0.1)
    assert not is_fused(made, dropping, cuda=True)


def test_4_bits_take_about_a_quarter_of_the_weights():
    spec, section = shape("llama-3.1-8b"), AdapterSection(rank=16)
    whole = frozen_weights(spec, section, "bf16", nf4=False)
    packed = frozen_weights(spec, section, "bf16", nf4=True)
    assert packed.stored + packed.scratch < 0.42 * whole.stored  # embedding and head, an eighth, stay in 16 bits
    assert whole.scratch == 0
