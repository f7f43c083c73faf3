"""Codes that norm and activation write beside their results are those of the rows quantized afterwards."""

import os

import pytest
import torch

from burnish_kernels.fp8_linear import op as fp8_linear
from burnish_kernels.fp8_linear.op import CODES, Fp8Rows, quantize_rows
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.swiglu import op as swiglu

TOKENS, SIZE = 5, 40


@pytest.fixture(params=["kernel", "reference", "no E4M3"], autouse=True)
def way(request, monkeypatch):
    """The kernels, interpreted; the reference; and kernels on a GPU without E4M3, which quantizes afterwards."""
    if request.param == "reference":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    elif os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
    if request.param == "no E4M3":
        monkeypatch.setattr(fp8_linear, "use_fp8_kernels", lambda _: False)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def memory(columns, tokens=TOKENS):
    """Codes and scales that hold something else."""
    return Fp8Rows(torch.full((tokens, columns), 3.0).to(CODES), torch.full((tokens,), -1.0))


def norm_forward(out, factor):
    return rms_norm.forward(drawn(TOKENS, SIZE), drawn(SIZE, seed=1), eps=1e-5, codes_out=out)[0]


def norm_backward(out, factor):
    x, weight, dy = drawn(TOKENS, SIZE), drawn(SIZE, seed=1), drawn(TOKENS, SIZE, seed=2)
    _, total, inverse = rms_norm.forward(x, weight, eps=1e-5)
    return rms_norm.backward(dy, total, weight, inverse, dsum_TH=x, codes_out=out, factor_H=factor)


def activation_forward(out, factor):
    return swiglu.forward(drawn(TOKENS, 2 * SIZE), activation="silu", codes_out=out)


def activation_backward(out, factor):
    dact, gate_up = drawn(TOKENS, SIZE // 2, seed=1), drawn(TOKENS, SIZE)
    return swiglu.backward(dact, gate_up, activation="silu", codes_out=out, factor_J=factor)


FORWARD = [norm_forward, activation_forward]
BACKWARD = [norm_backward, activation_backward]


@pytest.mark.parametrize("run", [*FORWARD, *BACKWARD])
@pytest.mark.parametrize("scaled", [False, True])
def test_codes_are_those_of_the_result(run, scaled):
    factor = drawn(SIZE, seed=9).float().abs() if scaled and run in BACKWARD else None
    out = memory(SIZE)
    result = run(out, factor)
    exact = quantize_rows(result, factor_K=factor)
    assert torch.equal(out.codes.view(torch.uint8), exact.codes.view(torch.uint8))
    assert torch.equal(out.scale, exact.scale)
    assert torch.equal(run(None, None), result), "codes change nothing else"


@pytest.mark.parametrize("run", [*FORWARD, *BACKWARD])
def test_memory_of_another_shape_is_refused(run):
    with pytest.raises(ValueError, match="out must be"):
        run(memory(SIZE + 8), None)


@pytest.mark.parametrize("run", BACKWARD)
def test_factors_of_another_shape_are_refused(run):
    with pytest.raises(ValueError, match="factor must be"):
        run(memory(SIZE), torch.ones(SIZE - 1))
