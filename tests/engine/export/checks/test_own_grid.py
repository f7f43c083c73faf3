"""Rows whose scales are wrong are told from rows that were rounded, weighed or refined, whatever the rows look like."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from burnish_engine.export.checks.own_grid import is_nearest
from burnish_engine.export.checks.rounding_error import outside
from burnish_engine.export.gguf.block_formats import BLOCK_FORMATS, dequantize, grid, pack, unpack
from burnish_engine.export.quantize.gptq import refine, upper_cholesky

WIDTH = 512
KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1")  # those that gguf can make
ROWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy": lambda rng, shape: rng.standard_t(2, shape),
    "two values": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "three values": lambda rng, shape: rng.choice([-1.0, 0.0, 1.0], shape),
    "six values": lambda rng, shape: rng.choice([-1, -0.6, -0.3, 0.3, 0.6, 1], shape),
    "one large": lambda rng, shape: np.where(np.arange(shape[1]) % 32, rng.choice([-0.3, 0.3], shape), 1.0),
    "one value": lambda rng, shape: 1 + 1e-3 * rng.standard_normal(shape),
    "offset": lambda rng, shape: 10 + rng.standard_normal(shape),
    "few": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.05),
    "positive": lambda rng, shape: np.exp(rng.standard_normal(shape)),
    "tiny": lambda rng, shape: 1e-6 * rng.standard_normal(shape),
}


def quantized(rows, kind):
    return quants.quantize(rows, GGMLQuantizationType[kind])


def refined(rows, kind, rng, spread=0.5):
    """The same with codes chosen for inputs some of which are stronger than others."""
    width = rows.shape[1]
    inputs = rng.standard_normal((width, width)) * np.exp(spread * rng.standard_normal(width))
    return refine(rows, quantized(rows, kind), kind, upper_cholesky(inputs.T @ inputs / width))


def scaled(data, kind, factor):
    """The same with other scales: the first two bytes of a block, and its offset in the next two."""
    layout = BLOCK_FORMATS[kind]
    blocks = data.reshape(-1, layout.bytes).copy()
    last = 4 if kind.endswith("1") else 2
    blocks[:, :last] = (blocks[:, :last].copy().view(np.float16) * np.float16(factor)).view(np.uint8)
    return blocks.reshape(data.shape)


def faults(data, rows, kind, choice):
    """Share of rows that are called wrong."""
    return np.mean(outside(data, dequantize(data, kind), rows, kind, choice=choice) > 0)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ROWS)
def test_no_row_that_was_only_rounded_or_refined_is_called_wrong(kind, name):
    rng = np.random.default_rng(5)
    rows = (0.05 * ROWS[name](rng, (64, WIDTH))).astype(np.float32)
    plain = quantized(rows, kind)
    assert [faults(plain, rows, kind, choice) for choice in ("nearest", "weighted", "refined")] == [0, 0, 0]
    for spread in (0.5, 2):
        assert faults(refined(rows, kind, rng, spread), rows, kind, "refined") == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_rows_of_wrong_scale_are_found(kind, factor):
    rng = np.random.default_rng(6)
    rows = (0.05 * rng.standard_normal((32, 2 * WIDTH))).astype(np.float32)
    plain = scaled(quantized(rows, kind), kind, factor)
    assert [faults(plain, rows, kind, choice) for choice in ("nearest", "weighted")] == [1, 1]
    if "5" in kind:  # with four bits, so narrow a row leaves it in doubt
        assert faults(scaled(refined(rows, kind, rng), kind, factor), rows, kind, "refined") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [-1, 1])
def test_one_code_beside_the_nearest_is_found(kind, step):
    """Every second row gets one code below or above the nearest, of a number that clearly lies nearer to its own."""
    rows = np.random.default_rng(7).standard_normal((32, WIDTH)).astype(np.float32)
    data = quantized(rows, kind)
    codes, allowed = unpack(data, kind), grid(data, kind)
    off = np.abs(dequantize(data, kind) - rows) / np.repeat(np.abs(allowed.scale), allowed.group, axis=1)
    can_move = (off > 0.2) & (off < 0.3) & (codes > 0) & (codes < len(allowed.levels) - 1)
    for row in range(0, len(rows), 2):
        place = np.flatnonzero(can_move[row])[row // 2]
        codes[row, place] = int(codes[row, place]) + step
    moved = pack(codes, data, kind)
    assert is_nearest(moved, dequantize(moved, kind), rows, kind).tolist() == [bool(row % 2) for row in range(32)]
