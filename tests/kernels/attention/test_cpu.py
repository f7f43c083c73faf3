"""Without the kernels, documents take PyTorch's fused attention where it computes the same, else the reference."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from burnish_kernels.attention import cpu, op, reference
from burnish_kernels.attention.documents import Documents

LENGTHS = {
    "one-document": [130],
    "rows-apart": [1] * 9,
    "pack": [37, 1, 50, 9, 33, 16, 16],
    "blocks": [800, 5],  # longer than the fused operations' blocks
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}
SCALE = 0.3


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def fused_rows(monkeypatch):
    """Lengths of the documents whose output was fused."""
    assert cpu.is_available()  # the try-out, once a process, is no document
    seen, fused = [], cpu._fused

    def watched(inputs, *others):
        seen.append(len(inputs[0]))
        fused(inputs, *others)

    monkeypatch.setattr(cpu, "_fused", watched)
    return seen


def columns(heads, width, rows, dtype, generator):
    """Views of one buffer with columns of no one's behind, one for each count of heads."""
    edges = np.cumsum([0, *heads]) * width
    buffer = torch.randn(rows, int(edges[-1]) + 8, generator=generator, dtype=torch.float64).to(dtype)
    return [buffer[:, first:past].unflatten(1, (-1, width)) for first, past in pairwise(edges)]


def worst_error(lengths, heads, kv_heads, width, dtype, **options):
    """Relative L2 error of output, sums and gradients against the reference in double precision."""
    boundaries = np.cumsum([0, *lengths])
    rows = int(boundaries[-1])
    docs = Documents.from_boundaries(boundaries, rows, op.tile_rows(width, dtype, "cpu"), "cpu")
    generator = torch.Generator().manual_seed(1)
    q, k, v = columns((heads, kv_heads, kv_heads), width, rows, dtype, generator)
    do, out, dq, dk, dv = columns((heads, heads, heads, kv_heads, kv_heads), width, rows, dtype, generator)
    o, lse = op.forward(q, k, v, docs, scale=SCALE, out=out, **options)
    found = op.backward(do, q, k, v, o, lse, docs, scale=SCALE, dq_out=dq, dk_out=dk, dv_out=dv, **options)
    assert o is out
    assert all(ours is given for ours, given in zip(found, (dq, dk, dv), strict=True))
    assert lse.dtype == torch.promote_types(dtype, torch.float32)
    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    exact, exact_lse = reference.attention(*leaves, docs.start_T, scale=SCALE, **options)
    gradients = torch.autograd.grad(exact, leaves, do.double())
    least = float(gradients[2].norm())  # of queries and keys that nothing depends on, the gradient is zero
    errors = [
        float((ours.double() - theirs).norm()) / max(float(theirs.norm()), least)
        for ours, theirs in zip((o, lse, *found), (exact.detach(), exact_lse.detach(), *gradients), strict=True)
    ]
    return max(errors)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1), (1, 1)])
@pytest.mark.parametrize("pack", LENGTHS)
def test_fused_documents_equal_the_reference(pack, heads, dtype, fused_rows):
    lengths = LENGTHS[pack]
    assert worst_error(lengths, *heads, 24, dtype) < TOLERANCE[dtype]
    assert fused_rows == lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_documents_that_a_window_cuts_take_the_reference(dtype, fused_rows):
    assert worst_error([20, 40, 1, 21], 4, 2, 16, dtype, window=20) < TOLERANCE[dtype]
    assert fused_rows == [20, 1]


@pytest.mark.parametrize("options", [{"softcap": 5.0}, {"softcap": 5.0, "window": 7}])
def test_soft_caps_take_the_reference(options, fused_rows):
    assert worst_error([20, 40], 4, 2, 16, torch.float32, **options) < TOLERANCE[torch.float32]
    assert fused_rows == []


def test_this_pytorch_has_the_fused_operations():
    assert cpu.is_available()


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError, TypeError])
@pytest.mark.parametrize("name", ["_fused", "_fused_gradients"])
def test_missing_operations_are_noticed(name, error, monkeypatch):
    def missing(*arguments):
        raise error("none")

    monkeypatch.setattr(cpu, name, missing)
    assert not cpu.is_available.__wrapped__()


def test_operations_that_mean_something_else_are_noticed(monkeypatch):
    fused = cpu._fused
    monkeypatch.setattr(cpu, "_fused", lambda inputs, o, lse, scale: fused(inputs, o, lse, 2 * scale))
    assert not cpu.is_available.__wrapped__()


def test_without_the_operations_all_documents_take_the_reference(monkeypatch, fused_rows):
    monkeypatch.setattr(cpu, "is_available", lambda: False)
    assert worst_error(LENGTHS["pack"], 4, 2, 16, torch.float32) < TOLERANCE[torch.float32]
    assert fused_rows == []


def test_the_operations_are_found_in_inference_mode():
    with torch.inference_mode():
        assert cpu.is_available.__wrapped__()
