"""Muon with the matrices of one shape taken together is torch's Muon."""

import pytest
import torch

from burnish_engine.train.optimizers import muon
from burnish_engine.train.optimizers.muon import BatchedMuon, orthogonalized

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [*[(16, 96)] * 5, *[(300, 16)] * 4, (64, 64), (1, 40)]
WITHIN = {"cpu": 1e-4, "cuda": 3e-3}  # of what is moved; the CPU's products of many matrices mostly have the same bits
OPTIONS = {"lr": 1e-2, "weight_decay": 0.1, "momentum": 0.9}


def fifty_steps(kind, device, *, without=(), **options):
    random = torch.Generator().manual_seed(0)
    matrices = [torch.nn.Parameter(torch.randn(shape, generator=random).to(device)) for shape in SHAPES]
    one = kind(matrices, **OPTIONS, **options)
    for _ in range(50):
        for index, matrix in enumerate(matrices):
            gradient = 0.1 * torch.randn(matrix.shape, generator=random).to(device)
            matrix.grad = None if index in without else gradient
        one.step()
    return matrices, [one.state[matrix].get("momentum_buffer") for matrix in matrices]


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("together", [1, 4000, 2**22])
def test_fifty_steps_are_torch_s_within_rounding(monkeypatch, device, together):
    """bf16's roundings, where products of many matrices are added up in another order."""
    monkeypatch.setattr(muon, "_BATCH_ELEMENTS", together)
    ours, momenta = fifty_steps(BatchedMuon, device)
    theirs, others = fifty_steps(torch.optim.Muon, device, adjust_lr_fn="match_rms_adamw")
    start = torch.Generator().manual_seed(0)
    for matrix, wanted, momentum, other in zip(ours, theirs, momenta, others, strict=True):
        moved = (wanted - torch.randn(wanted.shape, generator=start).to(device)).norm()
        assert (matrix - wanted).norm() < WITHIN[device] * moved
        assert torch.allclose(momentum, other, rtol=1e-6, atol=1e-7)


@pytest.mark.full
def test_what_has_no_gradient_stays():
    matrices, momenta = fifty_steps(BatchedMuon, "cpu", without=(1, 10))
    still, _ = fifty_steps(BatchedMuon, "cpu", without=range(len(SHAPES)))
    for index, (matrix, untouched, momentum) in enumerate(zip(matrices, still, momenta, strict=True)):
        assert torch.equal(matrix, untouched) == (index in (1, 10)) == (momentum is None)


@pytest.mark.parametrize("shape", [(3, 8, 32), (2, 32, 8)])
def test_singular_values_come_near_one(shape):
    stack = torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    values = torch.linalg.svdvals(orthogonalized(stack, (3.4445, -4.775, 2.0315), 5, 1e-7).float())
    assert values.shape == (shape[0], 8)
    assert values.min() > 0.5
    assert values.max() < 1.4
    assert torch.linalg.svdvals(stack.float()).max() > 5


def test_a_matrix_of_zeros_does_not_move():
    assert not orthogonalized(torch.zeros(2, 4, 8, dtype=torch.bfloat16), (3.4445, -4.775, 2.0315), 5, 1e-7).any()
