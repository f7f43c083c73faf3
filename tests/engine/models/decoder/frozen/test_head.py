"""Logits and the gradient of hidden states, with products in 16 bits and in INT8."""

import pytest
import torch

from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_memory import memory_of
from burnish_engine.advise.predict.plan_options import split_plan
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.decoder.frozen import head as head_module
from burnish_engine.models.decoder.frozen.head import Head
from burnish_engine.models.host_memory.streamed_matrix import StreamedMatrix

from support.memory.planned_memory import run

CPU = torch.device("cpu")
ELSEWHERE = torch.device("cpu:0")  # the same device by another name, to which a matrix comes in pieces


def operands(rows=500, columns=96, tokens=21, dtype=torch.bfloat16):
    random = torch.Generator().manual_seed(7)
    matrix, hidden, gradient = (
        torch.randn(*shape, generator=random).to(dtype)
        for shape in ((rows, columns), (tokens, columns), (tokens, rows))
    )
    hidden[:, 3] *= 30  # a column far above the others
    return matrix, hidden, gradient


def error(head, hidden, exact):
    return ((head.logits(hidden).double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("divisor", [1.0, 8.0])
def test_logits_of_int8_are_near_those_of_16_bits_and_their_gradient_is_the_same(divisor, monkeypatch):
    matrix, hidden, gradient = operands()
    plain, rounded = (Head(matrix, CPU, divisor=divisor, in_int8=way) for way in (False, True))
    exact = hidden.double() / divisor @ matrix.double().t()
    assert error(plain, hidden, exact) < 0.004 < error(rounded, hidden, exact) < 0.012
    assert torch.equal(plain.gradient(gradient), rounded.gradient(gradient))
    monkeypatch.setattr(head_module, "rotation_of", lambda _columns: 0)
    unrotated = Head(matrix, CPU, divisor=divisor, in_int8=True)
    assert error(unrotated, hidden, exact) > 0.015, "one column alone takes most of the levels"


@pytest.mark.parametrize("in_int8", [False, True])
def test_logits_of_a_matrix_in_pieces_are_those_of_the_whole(in_int8):
    matrix, hidden, gradient = operands(17_000, 1024, 3)  # 33 MiB: a whole piece and a short one
    here, away = (Head(matrix, device, in_int8=in_int8) for device in (CPU, ELSEWHERE))
    assert torch.equal(here.logits(hidden), away.logits(hidden))
    torch.testing.assert_close(here.gradient(gradient), away.gradient(gradient), rtol=2e-2, atol=2)
    assert set(here.codes()) == ({"codes", "scales"} if in_int8 else set())
    assert not away.codes(), "made of each piece when it arrives"


@pytest.mark.parametrize("rows", [500, 17_000])
def test_a_plan_counts_the_bytes_of_codes_where_the_head_lies(rows):
    columns, chunk = 1024, 256
    spec = shape("qwen3-0.6b").model_copy(update={"vocab_size": rows, "hidden_size": columns})
    matrix = torch.zeros(rows, columns, dtype=torch.bfloat16)
    resident = sum(tensor.nbytes for tensor in Head(matrix, CPU, in_int8=True).codes().values())
    largest_piece = max(span.stop - span.start for span, _ in StreamedMatrix(matrix, ELSEWHERE).pieces())
    codes = {}
    for products in ("", "int8"):
        counted = memory_of(run(Recipe(), spec, MicroBatchSize(4096, 256), eight_bits=EightBitUse(products=products)))
        plans = [
            split_plan(MemoryPlan(layers=("input",) * spec.num_layers, head_rows=chunk, head_on_host=away))[1]
            for away in (False, True)
        ]
        codes[products] = [(counted.head_codes(plan), counted.head_bytes(plan)) for plan in plans]
    (here, here_peak), (away, away_peak) = codes["int8"]
    assert (here, away) == (resident, 0), "beside a head in host memory none are kept"
    assert [kept for kept, _ in codes[""]] == [0, 0]
    a_row = columns + 4  # codes and a scale
    assert here_peak - codes[""][0][1] == chunk * a_row
    assert away_peak - codes[""][1][1] == (chunk + largest_piece) * a_row


@pytest.mark.parametrize(("products", "expected"), [("", False), ("int8", True), ("fp8", True), ("mxfp8", True)])
def test_logits_are_of_int8_beside_any_products_in_8_bits(products, expected):
    assert EightBitUse(products=products).logits_in_int8 == expected


@pytest.mark.gpu
@pytest.mark.parametrize("in_int8", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [
        (151_936, 1024, torch.bfloat16),  # ten pieces
        (49_152, 2560, torch.float16),  # a piece's first column is not aligned
        (180_000, 100, torch.bfloat16),  # nor is a row, and no rotation fits
    ],
)
def test_logits_of_int8_have_the_same_bits_wherever_the_weights_are(rows, columns, dtype, in_int8):
    matrix, hidden, gradient = operands(rows, columns, 300, dtype)
    device = torch.device("cuda")
    here = Head(matrix.to(device), device, in_int8=in_int8)
    away = Head(matrix.pin_memory(), device, in_int8=in_int8)
    exact = {"rtol": 0, "atol": 0}  # sums of INT8 are; those of 16 bits may be added up in another order
    near = exact if in_int8 else {"rtol": 2e-2, "atol": 2}
    torch.testing.assert_close(here.logits(hidden.to(device)), away.logits(hidden.to(device)), **near)
    torch.testing.assert_close(
        here.gradient(gradient.to(device)), away.gradient(gradient.to(device)), rtol=2e-2, atol=2
    )
