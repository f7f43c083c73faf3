"""Packed experts: the bytes of weights quantized alone, gpt-oss's values, and refusals."""

import pytest
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Nf4Experts, empty_nf4, nf4_scales, stack_nf4, unpack_group
from burnish_kernels.nf4.op import dequantize, quantize

WEIGHTS = torch.randn(3, 24, 128, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("double", [False, True])
def test_a_stack_holds_each_experts_bytes_and_gives_its_values(double):
    alone = [quantize(weight, double=double) for weight in WEIGHTS]
    stack = stack_nf4(alone)
    found = unpack_group(stack, 0, 3, dtype=torch.bfloat16)
    for index, weight in enumerate(alone):
        again = stack.expert(index)
        assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in weight.tensors().items())
        assert torch.equal(found[index], dequantize(weight, dtype=torch.bfloat16))


def test_mxfp4_values_are_those_of_transformers():
    stack = random_stack("mxfp4", 2, 8, 96, "cpu")
    wanted = convert_moe_packed_tensors(stack.blocks, stack.scales)  # [E, K, N], as gpt-oss multiplies
    assert torch.equal(unpack_group(stack, 0, 2, dtype=torch.bfloat16), wanted.transpose(1, 2))


def test_every_mxfp4_value_is_exact():
    blocks = torch.arange(16, dtype=torch.uint8).repeat(1, 1, 1, 1)  # low nibble counts up, high nibble 0
    stack = Mxfp4Experts(blocks, torch.tensor([[[128]]], dtype=torch.uint8))
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    found = unpack_group(stack, 0, 1, dtype=torch.bfloat16).flatten()
    assert found[::2].tolist() == [2 * one for one in magnitudes] + [-2 * one for one in magnitudes]
    assert not found[1::2].any()


def test_a_group_amid_the_stack_is_a_part_of_the_whole():
    for kind in ("nf4-double", "mxfp4"):
        stack = random_stack(kind, 5, 16, 64, "cpu")
        whole = unpack_group(stack, 0, 5, dtype=torch.float32)
        assert torch.equal(unpack_group(stack, 2, 2, dtype=torch.float32), whole[2:4])
    assert torch.equal(nf4_scales(random_stack("nf4-double", 5, 16, 64, "cpu"), 1, 2),
                       nf4_scales(random_stack("nf4-double", 5, 16, 64, "cpu"))[1:3])  # fmt: skip


def test_what_does_not_fit_is_named():
    stack = random_stack("nf4-double", 3, 16, 64, "cpu")
    with pytest.raises(ValueError, match="experts 2 to 4"):
        unpack_group(stack, 2, 2, dtype=torch.float32)
    with pytest.raises(ValueError, match="out"):
        unpack_group(stack, 0, 1, dtype=torch.float32, out=torch.zeros(1, 64, 16))
    with pytest.raises(ValueError, match="multiple of 64"):
        Nf4Experts(stack.packed, (32, 32), stack.absmax).check()
    with pytest.raises(ValueError, match="packed"):
        Nf4Experts(stack.packed[:, 1:], stack.shape, stack.absmax).check()
    with pytest.raises(ValueError, match="expert 1"):
        stack.put(1, quantize(WEIGHTS[0]))
    with pytest.raises(ValueError, match="multiple of 64"):
        empty_nf4(3, (64, 40), double=True, device="cpu")
    with pytest.raises(ValueError, match="one shape"):
        stack_nf4([quantize(WEIGHTS[0]), quantize(WEIGHTS[0, :8])])
    with pytest.raises(ValueError, match="scales"):
        packed = random_stack("mxfp4", 3, 16, 64, "cpu")
        Mxfp4Experts(packed.blocks, packed.scales[:2]).check()
