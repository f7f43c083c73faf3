"""Few tokens with weights in NF4: which products they are, how they are divided, what is refused, how bytes decode."""

import itertools

import pytest
import torch

from burnish_kernels.decode_linear.config import DecodeConfig
from burnish_kernels.decode_linear.nf4 import op
from burnish_kernels.decode_linear.nf4.config import choose
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter
from burnish_kernels.nf4 import op as nf4
from burnish_kernels.nf4.reference import levels

from support.ptx import run_ptx

STACK = Stack(64, 128, (StackedAdapter(0, 32, 4, 1.0),))
X = torch.randn(2, 128).bfloat16()
PARTS = [nf4.quantize(torch.randn(32, 128)) for _ in range(2)]
A, SB = torch.randn(16, 128).bfloat16(), torch.randn(64, 16).bfloat16()
SB[32:] = 0


def test_the_result_is_the_sum_of_both_products():
    bias, out = torch.randn(64).bfloat16(), torch.empty(2, 80, dtype=torch.bfloat16)[:, :64]
    found = op.forward(X, PARTS, A, SB, STACK, bias_N=bias, out=out)
    weight = torch.cat([nf4.dequantize(part, dtype=torch.float32) for part in PARTS])
    wanted = X.float() @ weight.t() + X.float() @ A.float().t() @ SB.float().t() + bias.float()
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.2)
    assert found.data_ptr() == out.data_ptr()


@pytest.mark.parametrize(
    ("x", "parts", "stack"),
    [
        (X.float(), PARTS, STACK),
        (torch.zeros(129, 128).bfloat16(), PARTS, STACK),
        (torch.zeros(32, 128).bfloat16(), PARTS, STACK),  # parts of 32 outputs
        (X, [PARTS[0], torch.zeros(32, 128)], STACK),
        (X, [nf4.quantize(torch.ones(32, 128), double=False), PARTS[0]], STACK),
        (X, [nf4.quantize(torch.ones(16, 128)), nf4.quantize(torch.ones(48, 128))], STACK),
        (X[:, :96], [nf4.quantize(torch.ones(64, 96))], Stack(64, 96)),  # blocks across rows
        (X, PARTS, Stack(64, 128, (StackedAdapter(16, 32, 4, 1.0),))),
    ],
    ids=["32 bits", "tokens", "small parts", "16-bit part", "scales", "rows", "columns", "adapter"],
)
def test_what_it_is_not_for_is_said_and_refused(x, parts, stack):
    assert op.is_possible(X, PARTS, STACK)
    assert not op.is_possible(x, parts, stack)
    with pytest.raises(ValueError, match="not for this"):
        op.forward(x, parts, A, SB, stack)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_BK": X[:, :64]}, "do not fit"),
        ({"parts": PARTS[:1]}, "do not fit"),
        ({"a_RK": A[:8]}, "do not fit"),
        ({"sb_NR": SB[:32]}, "do not fit"),
        ({"out": torch.zeros(2, 32).bfloat16()}, "do not fit"),
        ({"a_RK": A.half()}, "side by side"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        op.forward(**{"x_BK": X, "parts": PARTS, "a_RK": A, "sb_NR": SB, "stack": STACK} | change)


@pytest.mark.parametrize("rows", [1, 16, 17, 64, 128])
def test_no_program_has_as_many_tokens_as_outputs_where_each_warp_would_decode_all(rows):
    for capability, unit in itertools.product((80, 90, 120), (128, 64, 32)):
        config = choose(rows, (unit, 2 * unit), 6144, 2560, capability=capability, processors=132)
        if config is None:
            assert rows > unit // 2 or (capability == 90 and rows > 32)
        else:
            assert isinstance(config, DecodeConfig)
            assert rows < config.block_n == unit
            assert 2560 % config.block_k == 0
            assert 1 <= config.splits <= 2560 // config.block_k


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_picked_bytes_are_the_levels_times_the_scales(dtype):
    """Triton's interpreter does not run PTX, so this does: every byte in each of the four places."""
    kernel = pytest.importorskip("burnish_kernels.decode_linear.nf4.kernel")
    scale = torch.tensor([0.5, 2.0, -1.0, 0.25], dtype=dtype)
    table = levels().to(dtype)

    def halves(*words):
        return torch.tensor(words).to(torch.uint32).view(dtype)

    def words(values):
        return values.view(torch.uint32).tolist()

    def multiply_add(one, other, third):
        return words(halves(one) * halves(other) + halves(third))[0]

    for byte in range(0, 256, 5):
        four = torch.tensor([byte, (byte + 85) % 256, (byte * 7) % 256, 255 - byte])
        given = [int.from_bytes(bytes(four.tolist()), "little"), *words(scale)]
        held = {f"${number}": value for number, value in enumerate(given, 4)}
        held = run_ptx(kernel.decode_text(dtype), held, {"fma": multiply_add})
        wanted = torch.cat([table[four >> 4] * scale, table[four & 15] * scale])
        assert torch.equal(halves(*(held[f"${number}"] for number in range(4))), wanted)
