"""Products of 8-bit operands: scales, overflow, one payload for both directions, errors, refusals, and the fallback."""

import importlib.util
import os
from dataclasses import replace

import pytest
import torch

from burnish_kernels.eight_bit_linear import reference, tiles
from burnish_kernels.eight_bit_linear.op import (
    CODES,
    INT8,
    MOST_COLUMNS,
    EightBitRows,
    eight_bit_linear,
    new_rows,
    quantize_rows,
    transpose_codes,
)
from burnish_kernels.eight_bit_linear.rows import LARGEST, LARGEST_OF
from burnish_kernels.tuning import Device


@pytest.fixture(params=[CODES, INT8], ids=["e4m3", "int8"])
def kind(request):
    """Both types of codes."""
    return request.param


@pytest.fixture(params=["kernel", "reference"], autouse=True)
def way(request, monkeypatch):
    """Both ways of every operation: its kernels, interpreted, and its reference."""
    if request.param == "reference":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    elif os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
    return request.param


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_outliers(*shape, seed=0):
    """Activations of which a few columns are much larger, as behind a norm."""
    return drawn(*shape, seed=seed) * torch.where(torch.arange(shape[1]) % 16 == 3, 20.0, 1.0)


def dense(rows):
    return rows.codes.double() * rows.scale.double()[:, None]


def turned(codes):
    return transpose_codes(codes, torch.empty(codes.shape[::-1], dtype=codes.dtype))


def distance(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


def test_a_rows_largest_magnitude_becomes_the_largest_code_and_zeros_have_scale_one(kind):
    x = drawn(4, 40)
    x[1] = 0
    x[2] *= 1e-30
    found, largest = quantize_rows(x, codes=kind), LARGEST_OF[kind]
    assert found.codes.dtype == kind
    assert found.scale[1] == 1
    assert found.codes.float().abs().amax(dim=1).tolist() == [largest, 0, largest, largest]
    torch.testing.assert_close(found.scale[[0, 2, 3]], x.abs().amax(dim=1)[[0, 2, 3]] / largest)
    # Half a unit: of whole numbers, or of the last of three bits, or of the smallest subnormal.
    bound = torch.maximum(x.abs() / 16, found.scale[:, None] * 2**-10) if kind == CODES else found.scale[:, None] / 2
    assert ((dense(found) - x).abs() <= bound * 1.001).all()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.75 * 2**-9, 2**-9),
        (2**-10, 0.0),
        (1.5 * 2**-9, 2**-8),
        (1.9375, 2.0),
        (1.0625, 1.0),
        (1.1875, 1.25),
        (447, 448),
    ],
)
def test_codes_are_rounded_to_nearest_with_halves_to_even(value, code):
    found = quantize_rows(torch.tensor([[LARGEST, value, -value]]))
    assert found.codes.float().tolist() == [[LARGEST, code, -code]]


@pytest.mark.parametrize(
    ("value", "code"), [(0.5, 0.0), (0.501, 1.0), (1.5, 2.0), (2.5, 2.0), (126.5, 126.0), (126.6, 127.0)]
)
def test_whole_numbers_are_rounded_to_nearest_with_halves_to_even(value, code):
    found = quantize_rows(torch.tensor([[LARGEST_OF[INT8], value, -value]]), codes=INT8)
    assert found.codes.tolist() == [[127, code, -code]]


@pytest.mark.full
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_not_finite_reaches_the_whole_row_of_the_product_and_no_other(value, dtype, kind):
    x, weight = drawn(3, 40), quantize_rows(drawn(24, 40, seed=1), codes=kind)
    x[1, 7] = value
    y = eight_bit_linear(quantize_rows(x.to(dtype), codes=kind), weight.codes, scale_N=weight.scale)
    assert not y[1].isfinite().any()
    assert y[[0, 2]].isfinite().all()


def test_a_factor_that_overflows_is_not_finite_either(kind):
    found = quantize_rows(torch.full((1, 16), 1e30), factor_K=torch.full((16,), 1e30), codes=kind)
    assert not eight_bit_linear(found, quantize_rows(drawn(8, 16), codes=kind).codes).isfinite().any()


@pytest.mark.full
@pytest.mark.parametrize("tile", [tiles.INTERPRETED, tiles.INTERPRETED_PERSISTENT], ids=["plain", "persistent"])
def test_sums_of_whole_numbers_are_exact(way, tile):
    """They pass 2^25, where fp32 has even numbers alone, and come back to 127."""
    if way == "reference":
        pytest.skip("which sums in fp32")
    x = torch.full((1, 5008), 127.0)
    x[0, 2504:] = -127.0
    x[0, 3] = 126.0
    weight = torch.full((1, 5008), 127, dtype=INT8)
    weight[0, -1] = 125
    found = eight_bit_linear(quantize_rows(x, codes=INT8), weight, dtype=torch.float16, tile=tile)
    assert found.tolist() == [[127.0]]


def test_sums_that_might_not_fit_int32_are_refused():
    rows = EightBitRows(torch.zeros(1, MOST_COLUMNS + 1, dtype=INT8), torch.ones(1))
    with pytest.raises(ValueError, match="int32"):
        eight_bit_linear(rows, rows.codes)


@pytest.mark.full
def test_one_payload_serves_both_directions(kind):
    """A gradient of one element is exact in 8 bits, so it picks the stored row of W, scale and all."""
    weight = quantize_rows(drawn(24, 40) * torch.logspace(-3, 3, 24)[:, None], codes=kind)
    dy = torch.eye(24)
    rows = quantize_rows(dy, factor_K=weight.scale, codes=kind)
    dx = eight_bit_linear(rows, turned(weight.codes), dtype=torch.float16)
    y = eight_bit_linear(
        quantize_rows(torch.eye(40), codes=kind), weight.codes, scale_N=weight.scale, dtype=torch.float16
    )
    torch.testing.assert_close(dx.double(), dense(weight), rtol=2**-10, atol=1e-6)
    assert torch.equal(y, dx.t())


@pytest.mark.full
@pytest.mark.parametrize("backward", [False, True])
def test_the_error_is_that_of_the_quantized_operands(backward, kind):
    weight_NK, x = drawn(48, 80) * 80**-0.5, with_outliers(33, 48 if backward else 80, seed=1)
    narrow, adapter = drawn(33, 5, seed=2).half(), drawn(80 if backward else 48, 5, seed=3).half()
    weight = quantize_rows(weight_NK, codes=kind)
    rows = quantize_rows(x.half(), factor_K=weight.scale if backward else None, codes=kind)
    codes, scale = (turned(weight.codes), None) if backward else (weight.codes, weight.scale)
    y = eight_bit_linear(rows, codes, scale_N=scale, narrow_TR=narrow, adapter_NR=adapter, dtype=torch.float16)
    tail = narrow.double() @ adapter.double().t()
    exact = x.double() @ (weight_NK if backward else weight_NK.t()).double() + tail
    operands = dense(rows) @ (codes.double() if scale is None else dense(weight)).t() + tail
    assert distance(y, operands) < 2**-11  # half of fp16's last bit
    assert distance(y, exact) <= distance(operands, exact) + 2**-9
    assert 0.005 < distance(operands, exact) < 0.05


@pytest.mark.quick_cases(1)
def test_columns_that_are_rotated_leave_levels_to_the_others():
    """INT8 errs less than E4M3 and than INT8 that is not rotated; the gradient is rotated back."""
    weight_NK, x, dy = drawn(48, 192) * 192**-0.5, with_outliers(33, 192, seed=1), drawn(33, 48, seed=2)
    exact, errors = (x.double() @ weight_NK.double().t(), dy.double() @ weight_NK.double()), {}
    for kind, rotation in ((CODES, 0), (INT8, 0), (INT8, 64)):
        weight = quantize_rows(weight_NK, codes=kind, rotation=rotation)
        rows = quantize_rows(x.half(), codes=kind, rotation=rotation)
        y = eight_bit_linear(rows, weight.codes, scale_N=weight.scale, dtype=torch.float16)
        gradient = quantize_rows(dy, factor_K=weight.scale, codes=kind)
        dx = eight_bit_linear(gradient, turned(weight.codes), rotation=rotation, dtype=torch.float16)
        errors[kind, rotation] = distance(y, exact[0]), distance(dx, exact[1])
    assert errors[INT8, 64][0] < 0.7 * min(errors[CODES, 0][0], errors[INT8, 0][0])
    assert errors[INT8, 64][1] < 0.6 * errors[CODES, 0][1]


@pytest.mark.parametrize(
    ("columns", "block"), [(576, 64), (1056, 32), (48, 16), (40, 0), (64, 64), (2**15, 64), (2**15 + 64, 0)]
)
def test_blocks_are_as_large_as_they_fit(columns, block):
    assert reference.rotation_of(columns) == block


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rotation", "outputs"), [(64, 192), (32, 96), (16, 48)])
def test_a_product_is_rotated_and_rounded_twice_and_its_adapter_is_not_rotated(rotation, outputs):
    rows, weight = (quantize_rows(drawn(size, 80, seed=size), codes=INT8) for size in (33, outputs))
    narrow, adapter = drawn(33, 3, seed=1).half(), drawn(outputs, 3, seed=2).half()
    exact = dense(rows) @ dense(weight).t()
    operands = {"x": rows, "weight_NK": weight.codes, "scale_N": weight.scale, "dtype": torch.float16}
    once, twice = (eight_bit_linear(**operands, rotation=block) for block in (0, rotation))
    rounding = distance(once, exact)
    assert rounding < distance(twice, reference.rotate(exact, rotation)) < 1.6 * rounding
    added = eight_bit_linear(**operands, rotation=rotation, narrow_TR=narrow, adapter_NR=adapter)
    tail = narrow.double() @ adapter.double().t()
    assert distance(added, reference.rotate(exact, rotation) + tail) < 1.6 * rounding
    none = quantize_rows(drawn(0, 80), codes=INT8)
    assert eight_bit_linear(none, weight.codes, rotation=rotation).shape == (0, outputs)


@pytest.mark.parametrize(("columns", "rotation"), [(96, 64), (64, 8), (64, 128), (2**15 + 64, 64)])
def test_blocks_that_do_not_divide_a_row_are_refused(columns, rotation):
    with pytest.raises(ValueError, match="rotated"):
        quantize_rows(torch.zeros(3, columns), codes=INT8, rotation=rotation)
    with pytest.raises(ValueError, match="rotated"):
        eight_bit_linear(new_rows(3, 16, "cpu", INT8), new_rows(columns, 16, "cpu", INT8).codes, rotation=rotation)
    with pytest.raises(ValueError, match="no factors"):
        quantize_rows(torch.zeros(3, 64), codes=INT8, rotation=64, factor_K=torch.ones(64))


def test_an_adapter_of_no_rank_adds_nothing():
    x, weight = quantize_rows(drawn(3, 16)), quantize_rows(drawn(8, 16, seed=1))
    none = {"narrow_TR": torch.empty(3, 0).bfloat16(), "adapter_NR": torch.empty(8, 0).bfloat16()}
    assert torch.equal(eight_bit_linear(x, weight.codes, **none), eight_bit_linear(x, weight.codes))


@pytest.mark.full
def test_results_are_written_where_asked_with_rows_apart():
    x = drawn(5, 48)[:, :40]
    out = EightBitRows(torch.zeros(5, 64, dtype=torch.uint8).view(CODES)[:, :40], torch.empty(5))
    assert quantize_rows(x, out=out) is out
    assert torch.equal(out.codes.view(torch.uint8), quantize_rows(x.contiguous()).codes.view(torch.uint8))
    weight = quantize_rows(drawn(24, 40, seed=1))
    y = torch.zeros(5, 32, dtype=torch.float16)
    assert eight_bit_linear(out, weight.codes, out=y[:, :24]).data_ptr() == y.data_ptr()
    assert torch.equal(y[:, :24], eight_bit_linear(out, weight.codes, dtype=torch.float16))
    assert not y[:, 24:].any()


def test_no_rows_are_no_error():
    x = quantize_rows(torch.empty(0, 40))
    assert eight_bit_linear(x, quantize_rows(drawn(8, 40)).codes).shape == (0, 8)
    assert turned(x.codes).shape == (40, 0)


X, WEIGHT = (EightBitRows(torch.zeros(rows, 16, dtype=torch.uint8).view(CODES), torch.ones(rows)) for rows in (3, 8))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"x": replace(X, codes=X.codes.view(torch.uint8))}, "codes"),
        ({"x": replace(X, scale=torch.ones(4))}, "scales"),
        ({"weight_NK": WEIGHT.codes[:, :8]}, "weight"),
        ({"weight_NK": torch.zeros(16, 8, dtype=torch.uint8).view(CODES).t()}, "side by side"),
        ({"weight_NK": torch.zeros(8, 16, dtype=INT8)}, "weight"),
        ({"scale_N": torch.ones(9)}, "scale"),
        ({"out": torch.empty(3, 8)}, "out"),
        ({"dtype": torch.float32}, "out"),
        ({"narrow_TR": torch.zeros(3, 2).bfloat16()}, "both"),
        ({"narrow_TR": torch.zeros(3, 2), "adapter_NR": torch.zeros(8, 2).bfloat16()}, "narrow"),
        ({"narrow_TR": torch.zeros(3, 2).bfloat16(), "adapter_NR": torch.zeros(8, 3).bfloat16()}, "adapter"),
    ],
)
def test_a_product_that_does_not_fit_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        eight_bit_linear(**{"x": X, "weight_NK": WEIGHT.codes} | changes)


def test_rows_and_transposes_that_do_not_fit_are_refused():
    for wrong in (torch.zeros(4), torch.zeros(4, 4, dtype=torch.int32), torch.zeros(3, 4).t()):
        with pytest.raises(ValueError, match="x must"):
            quantize_rows(wrong)
    with pytest.raises(ValueError, match="factor"):
        quantize_rows(torch.zeros(3, 16), factor_K=torch.ones(16).double())
    with pytest.raises(ValueError, match="out"):
        quantize_rows(torch.zeros(4, 16), out=X)
    with pytest.raises(ValueError, match="bytes"):
        transpose_codes(torch.zeros(3, 4), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="out"):
        transpose_codes(X.codes, torch.empty(3, 16, dtype=CODES))


@pytest.mark.parametrize("columns", [24, 32], ids=["unaligned", "aligned"])
def test_rows_that_hoppers_copy_engine_cannot_read_are_multiplied_too(columns, kind):
    x, weight = (quantize_rows(drawn(rows, columns, seed=rows), codes=kind) for rows in (5, 16))
    words = {"scale_N": weight.scale, "dtype": torch.float16, "tile": tiles.INTERPRETED_PERSISTENT}
    assert distance(eight_bit_linear(x, weight.codes, **words), dense(x) @ dense(weight).t()) < 1e-3


@pytest.mark.parametrize(
    ("capability", "kernels", "whole", "tile"),
    [
        (75, False, False, None),
        (86, False, True, tiles.OTHERS),
        (89, True, True, tiles.OTHERS),
        (90, True, True, tiles.HOPPER),
        (120, True, True, tiles.OTHERS),
    ],
)
def test_gpus_without_8_bit_products_take_the_reference(monkeypatch, capability, kernels, whole, tile):
    monkeypatch.setattr(tiles, "device_of", lambda device: Device("card", capability))
    monkeypatch.setattr(tiles, "use_kernels", lambda tensor: True)
    assert tiles.use_eight_bit_kernels(torch.empty(0)) is kernels
    assert tiles.use_eight_bit_kernels(torch.empty(0), INT8) is whole
    assert tile is None or tiles.choose_tile(torch.device("cuda")) == tile
    short = tiles.HOPPER_SHORT if capability == 90 else tile
    assert tile is None or tiles.choose_tile(torch.device("cuda"), INT8, 2048) == short
    assert tile is None or tiles.choose_tile(torch.device("cuda"), INT8, 4096) == tile
    rotated = tiles.HOPPER_ROTATED if capability == 90 else tile
    assert tile is None or tiles.choose_tile(torch.device("cuda"), INT8, 2048, rotated=True) == short
    assert tile is None or tiles.choose_tile(torch.device("cuda"), INT8, 4096, rotated=True) == rotated


@pytest.mark.gpu
@pytest.mark.parametrize("backward", [False, True])
def test_products_are_those_of_scaled_mm(backward):
    """Row-wise `torch._scaled_mm`, of which each scale is one row's; the sums of both add little to the error."""
    if torch.cuda.get_device_capability() < (8, 9) or importlib.util.find_spec("triton") is None:
        pytest.skip("no 8-bit products")
    matrix = (drawn(1536, 2048) * 2048**-0.5).cuda()
    x = with_outliers(1000, 1536 if backward else 2048, seed=1).cuda().bfloat16()
    weight = quantize_rows(matrix)
    rows = quantize_rows(x, factor_K=weight.scale if backward else None)
    codes, scale = weight.codes, weight.scale
    if backward:
        codes, scale = transpose_codes(codes, codes.new_empty(codes.shape[::-1])), None
    found = eight_bit_linear(rows, codes, scale_N=scale)
    right = torch.ones(1, len(codes), device="cuda") if scale is None else scale[None]
    theirs = torch._scaled_mm(rows.codes, codes.t(), rows.scale[:, None], right, out_dtype=torch.bfloat16)
    quantized = reference.eight_bit_linear(rows.codes, rows.scale, codes, scale, None, None, torch.float64)
    exact = x.double() @ (matrix if backward else matrix.t()).double()
    assert distance(found, exact) <= distance(quantized, exact) + 2**-9
    assert distance(found, quantized) <= distance(theirs, quantized) + 2**-9


@pytest.mark.gpu
def test_products_of_whole_numbers_are_those_of_int_mm():
    """To the last bit: sums are exact, and each is scaled and rounded in the same order."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no 8-bit products")
    weight = quantize_rows((drawn(1536, 2048) * 2048**-0.5).cuda(), codes=INT8)
    rows = quantize_rows(with_outliers(1000, 2048, seed=1).cuda().bfloat16(), codes=INT8)
    found = eight_bit_linear(rows, weight.codes, scale_N=weight.scale)
    sums = torch._int_mm(rows.codes, weight.codes.t()).float()
    assert torch.equal(found, (sums * rows.scale[:, None] * weight.scale).bfloat16())
