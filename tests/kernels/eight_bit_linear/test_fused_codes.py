"""Codes that norm and activation write beside their results are those of the rows quantized afterwards."""

import os

import pytest
import torch

from burnish_kernels.eight_bit_linear import op as eight_bit_linear
from burnish_kernels.eight_bit_linear.op import CODES, INT8, EightBitRows, quantize_rows
from burnish_kernels.eight_bit_linear.projected import op as projected
from burnish_kernels.lora_linear.skinny import project
from burnish_kernels.lora_linear.tiles import RankSegment
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.swiglu import op as swiglu
from burnish_kernels.swiglu.adapted import op as adapted

TOKENS, SIZE = 5, 40


@pytest.fixture(params=[CODES, INT8], ids=["e4m3", "int8"])
def kind(request):
    """Both types of codes."""
    return request.param


@pytest.fixture(params=["kernel", "reference", "no codes"], autouse=True)
def way(request, monkeypatch):
    """The kernels, interpreted; the reference; and kernels on a GPU without such codes, which quantizes afterwards."""
    if request.param == "reference":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    elif os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
    if request.param == "no codes":
        monkeypatch.setattr(eight_bit_linear, "use_eight_bit_kernels", lambda *_: False)
    return request.param


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def memory(columns, tokens=TOKENS, kind=CODES):
    """Codes and scales that hold something else."""
    return EightBitRows(torch.full((tokens, columns), 3.0).to(kind), torch.full((tokens,), -1.0))


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


@pytest.mark.full
@pytest.mark.parametrize("run", [*FORWARD, *BACKWARD])
@pytest.mark.parametrize("scaled", [False, True])
def test_codes_are_those_of_the_result(run, scaled, kind):
    factor = drawn(SIZE, seed=9).float().abs() if scaled and run in BACKWARD else None
    out = memory(SIZE, kind=kind)
    result = run(out, factor)
    exact = quantize_rows(result, factor_K=factor, codes=kind)
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


SEGMENTS = [RankSegment(0, SIZE // 2, 0, 3), RankSegment(SIZE // 2, SIZE // 2, 3, 16)]


def gradient(largest, factor, **more):
    """The gradient of the activation, with its rows' largest magnitudes."""
    dact, gate_up = drawn(TOKENS, SIZE // 2, seed=1), drawn(TOKENS, SIZE)
    outer = adapted.OuterProduct(drawn(TOKENS, 16, seed=3), torch.zeros(16, SIZE // 2))
    words = {"largest_out": largest, "factor_J": factor, **more}
    return adapted.backward_adapted(dact, gate_up, activation="silu", act=outer, **words)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("one_pass", [False, True])
@pytest.mark.parametrize("segments", [None, SEGMENTS, SEGMENTS[:1]], ids=["none", "two", "a part"])
def test_a_narrow_product_quantizes_its_rows(scaled, one_pass, segments, kind, monkeypatch):
    if one_pass:  # as with so many tokens that a program for each segment fills a device
        monkeypatch.setattr(projected, "project_splits", lambda *_: 1)
    factor = drawn(SIZE, seed=9).float() if scaled else None
    largest, out, narrow = torch.full((TOKENS,), torch.nan), memory(SIZE, kind=kind), torch.zeros(TOKENS, 19).half()
    dy = gradient(largest, factor)
    a = drawn(19, SIZE, seed=4)
    exact = quantize_rows(dy, factor_K=factor, codes=kind)
    assert torch.equal(largest, (dy.float() if factor is None else dy.float() * factor).abs().amax(dim=1))
    projected.project_codes(dy, a, narrow, segments, codes_out=out, largest_T=largest, factor_C=factor)
    assert torch.equal(out.codes.view(torch.uint8), exact.codes.view(torch.uint8))
    assert torch.equal(out.scale, exact.scale)
    expected = torch.zeros_like(narrow)
    project(dy, a, expected, segments)
    torch.testing.assert_close(narrow, expected)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"largest_T": torch.ones(TOKENS - 1)}, "largest must be"),
        ({"largest_T": torch.ones(TOKENS).half()}, "largest must be"),
        ({"codes_out": memory(SIZE + 8)}, "out must be"),
        ({"factor_C": torch.ones(SIZE + 1)}, "factor must be"),
        ({"a_RC": drawn(18, SIZE)}, "transposed is not"),
        ({"segments": [RankSegment(0, SIZE, 0, 20)]}, "ranks"),
    ],
)
def test_what_does_not_fit_a_narrow_product_is_refused(changes, words, monkeypatch):
    monkeypatch.setattr(projected, "project_splits", lambda *_: 1)
    given = {"x_TC": drawn(TOKENS, SIZE), "a_RC": drawn(19, SIZE), "out_TR": drawn(TOKENS, 19)}
    given |= {"codes_out": memory(SIZE), "largest_T": torch.ones(TOKENS)}
    with pytest.raises(ValueError, match=words):
        projected.project_codes(**{**given, **changes})


@pytest.mark.parametrize(
    ("largest", "factor", "words"),
    [(torch.ones(TOKENS + 1), None, "largest_out"), (torch.ones(TOKENS), torch.ones(SIZE - 1), "factor")],
)
def test_magnitudes_that_do_not_fit_are_refused(largest, factor, words):
    with pytest.raises(ValueError, match=words):
        gradient(largest, factor)


@pytest.mark.parametrize("run", [*FORWARD, *BACKWARD])
def test_what_is_not_finite_gives_no_finite_scale_of_whole_numbers(run, monkeypatch):
    """INT8 has no code for NaN, and the largest magnitude of a row must not lose it."""
    whole = drawn

    def broken(*shape, seed=0):
        x = whole(*shape, seed=seed)
        if len(shape) == 2 and seed == 0:
            x[1, 0] = torch.nan
        return x

    monkeypatch.setitem(globals(), "drawn", broken)
    out = memory(SIZE, kind=INT8)
    run(out, None)
    assert out.scale.isfinite().tolist() == [True, False, True, True, True]


def test_a_gradient_that_is_not_finite_has_no_finite_magnitude(monkeypatch):
    whole = drawn

    def broken(*shape, seed=0):
        x = whole(*shape, seed=seed)
        if seed == 1:
            x[1, 0] = torch.nan
        return x

    monkeypatch.setitem(globals(), "drawn", broken)
    largest = torch.full((TOKENS,), -1.0)
    gradient(largest, None)
    assert largest.isfinite().tolist() == [True, False, True, True, True]
