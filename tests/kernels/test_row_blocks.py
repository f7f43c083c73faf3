"""Blocks cover all rows once, and operations done by blocks give what they give at once, in place as well."""

import pytest
import torch

from burnish_kernels import row_blocks
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.swiglu import op as swiglu

ROWS, WIDTH = 23, 16


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (7, 5), (1000, 1000), (3, row_blocks.BLOCK_ELEMENTS * 1000), (5, 0)])
def test_every_row_is_in_one_block(shape):
    tensor = torch.empty(1, 1).expand(shape) if 0 not in shape else torch.empty(shape)
    rows = list(range(shape[0]))
    assert [row for block in row_blocks.row_blocks(tensor) for row in rows[block]] == rows


def test_wide_matrices_have_several_blocks():
    blocks = row_blocks.row_blocks(torch.empty(1, 1).expand(4096, 4096 * torch.get_num_threads()))
    assert len(blocks) == 4096 * 4096 // row_blocks.BLOCK_ELEMENTS


def both_ways(monkeypatch, compute):
    whole = compute()
    monkeypatch.setattr(row_blocks, "BLOCK_ELEMENTS", 4 * WIDTH // torch.get_num_threads())
    return whole, compute()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_swiglu_in_place(dtype, monkeypatch):
    def compute():
        generator = torch.Generator().manual_seed(0)
        gate_up, dact = (torch.randn(ROWS, width, generator=generator).to(dtype) for width in (2 * WIDTH, WIDTH))
        act = swiglu.forward(gate_up, activation="silu")
        swiglu.backward(dact, gate_up, activation="silu", out=gate_up, act_out=dact)
        assert torch.equal(act, dact)
        return act, gate_up

    for whole, blocks in zip(*both_ways(monkeypatch, compute), strict=True):
        torch.testing.assert_close(whole, blocks)


@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm_in_place(with_residual, monkeypatch):
    def compute():
        generator = torch.Generator().manual_seed(0)
        x, dy, dsum = (torch.randn(ROWS, WIDTH, generator=generator) for _ in range(3))
        weight = torch.rand(WIDTH, generator=generator)
        y, total, inverse = rms_norm.forward(x, weight, eps=1e-5)
        again = torch.empty_like(y)
        residual = {"dsum_TH": dsum, "out": dsum} if with_residual else {"out": dy}
        dx = rms_norm.backward(dy, total, weight, inverse, y_out=again, **residual)
        assert torch.equal(y, again)
        return y, dx

    for whole, blocks in zip(*both_ways(monkeypatch, compute), strict=True):
        torch.testing.assert_close(whole, blocks)
