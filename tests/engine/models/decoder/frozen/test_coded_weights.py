"""One stack whose products are in 8 bits, by each format and storage, beside the same operands rounded in fp64."""

import os

import pytest
import torch

from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS
from burnish_engine.models.decoder.frozen.coded_weights import CodeScratch, Nf4CodedWeight, StoredCodedWeight
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight
from burnish_engine.models.decoder.frozen.parts import part_tensors, placed, unpack
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_kernels.eight_bit_linear import op as eight_bit
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4

DEVICE = "cuda" if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1" else "cpu"
T, K, N = 37, 64, 96
ADAPTERS = (lora_linear.StackedAdapter(0, 16, 5, 2.0), lora_linear.StackedAdapter(24, 72, 16, 0.5))
STORED = [(name, stored) for name in CODE_FORMATS for stored in ("codes", "nf4", "nf4 and 16 bits")]
DTYPES = [torch.float16, torch.bfloat16]


def draw(*shape, seed=0, dtype=torch.float32):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / 4).to(DEVICE, dtype)


def made(kind, dtype, adapters=ADAPTERS, *, bias=False, scratch=None):
    """A stack, and its weight as products read it, fp64: codes, and the scale of each."""
    name, stored = kind
    form = CODE_FORMATS[name]
    stack = lora_linear.Stack(N, K, adapters)
    whole = torch.zeros(stack.buffer_shape, device=DEVICE)
    weight = draw(N, K, seed=1) * torch.exp2(torch.arange(N, device=DEVICE) % 5 - 2.0)[:, None]
    weight = weight.to(dtype)
    if adapters:
        a = [draw(one.rank, K, seed=2 + place) for place, one in enumerate(adapters)]
        stack.fill(whole, a, [draw(one.rows, one.rank, seed=5 + place) for place, one in enumerate(adapters)])
    whole = whole.to(dtype)
    a_RK, sb_NR = whole[N:, :K], whole[:N, K:]
    scratch = scratch or CodeScratch(*(torch.empty(N * K, dtype=form.dtype, device=DEVICE) for _ in range(2)))
    if stored == "codes":
        rows = form.quantize(weight)
        values, frozen = weight.float(), StoredCodedWeight(form, a_RK, sb_NR, scratch, rows)
    else:
        parts = [nf4.quantize(weight[:40].float()), nf4.quantize(weight[40:].float())]
        if stored != "nf4":
            parts[0] = weight[:40]
        frozen = Nf4CodedWeight(form, a_RK, sb_NR, scratch, parts, form.scales(parts, torch.device(DEVICE)))
        values = torch.cat(
            [part.float() if isinstance(part, torch.Tensor) else nf4.dequantize(part, dtype=torch.float32)
             for part in parts]
        )  # fmt: skip
    codes, scale = rounded_weight(name, values)
    linear = StackedLinear(stack, frozen, draw(N, seed=9, dtype=dtype) if bias else None)
    return linear, codes, scale, a_RK.double(), sb_NR.double()


def rounded_weight(name, values):
    """Codes of a weight, and the scale of each, fp64, written down again from the formats' definitions.

    Those of INT8 are rotated back.
    """
    if name == "int8":
        values = turned(values)
    if name != "mxfp8":
        scale = (values.abs().amax(dim=1, keepdim=True) / (127 if name == "int8" else 448)).expand_as(values)
    else:
        scale = block_powers(values.unflatten(0, (-1, 32)).abs().amax(dim=1).unflatten(1, (-1, 32)).amax(dim=2))
        scale = scale.repeat_interleave(32, dim=0).repeat_interleave(32, dim=1)
    ratio = values / scale
    codes = (ratio.round() if name == "int8" else ratio.to(torch.float8_e4m3fn)).double()
    return turned(codes) if name == "int8" else codes, scale.double()


def turned(rows):
    """Rows times the orthogonal Hadamard matrix of 64: its signs are those of the numbers of common ones."""
    signs = torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(64)] for i in range(64)], device=rows.device)
    return (rows.unflatten(1, (-1, 64)) @ signs.to(rows.dtype) / 8).flatten(1)


def block_powers(largest):
    """The smallest power of two by which the largest magnitude of a block becomes at most 448."""
    return torch.exp2(torch.ceil(torch.log2(largest.double() / 448))).float()


def rounded(name, rows, factor=None):
    """An operand as products read it, fp64."""
    wide = rows.float()
    if name != "mxfp8":
        rotation = 64 if name == "int8" and factor is None else 0
        found = eight_bit.quantize_rows(rows, factor_K=factor, codes=CODE_FORMATS[name].dtype, rotation=rotation)
        values = found.codes.double() * found.scale.double()[:, None]
        return turned(values) if rotation else values
    assert factor is None
    scale = block_powers(wide.unflatten(1, (-1, 32)).abs().amax(dim=2)).repeat_interleave(32, dim=1)
    return (wide / scale).to(torch.float8_e4m3fn).double() * scale.double()


def assert_near(found, wanted, dtype, next_code=0.0):
    """The result differs by its own rounding, and by that of XAᵀ or dY·sB, and by what the next code makes of it."""
    torch.testing.assert_close(found.double(), wanted, rtol=2**-7, atol=4 * torch.finfo(dtype).eps + next_code)


def next_code(name, rows, scale):
    """Change of a product if one code of a rotated weight is the next one, because its sum was near a half."""
    return float(rows.double().abs().max() * scale.max()) if name == "int8" else 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", STORED, ids=" ".join)
@pytest.mark.parametrize("adapters", [ADAPTERS, ()])
def test_products_are_those_of_the_rounded_operands(kind, dtype, adapters):
    linear, codes, scale, a_RK, sb_NR = made(kind, dtype, adapters, bias=True)
    x = draw(T, K, seed=11, dtype=dtype)
    x_TE = linear.new_input(T, x).fill_(float("nan"))
    x_TE[:, :K] = x
    wanted = rounded(kind[0], x) @ (codes * scale).t() + x.double() @ a_RK.t() @ sb_NR.t() + linear.bias_N.double()
    assert_near(linear.forward(x_TE), wanted, dtype, next_code(kind[0], x, scale))
    assert_near(linear.adapted_input(x_TE), x.double() @ a_RK.t(), dtype)

    dy = draw(T, N, seed=12, dtype=dtype)
    dy_TE = linear.new_gradient(T, dy).fill_(float("nan"))
    dy_TE[:, :N] = dy
    factor = linear.frozen.gradient_factor_N
    read = codes if factor is not None else codes * scale
    wanted = rounded(kind[0], dy, factor) @ read + dy.double() @ sb_NR @ a_RK
    assert_near(linear.input_gradient(dy_TE), wanted, dtype, next_code(kind[0], dy, scale))
    assert_near(dy_TE[:, N:], dy.double() @ sb_NR, dtype)


@pytest.mark.parametrize("kind", STORED, ids=" ".join)
def test_the_gradient_that_is_not_wanted_still_reaches_the_adapters(kind):
    linear, _, _, _, sb_NR = made(kind, torch.bfloat16)
    dy_TE = linear.new_gradient(T, draw(T, N, dtype=torch.bfloat16)).fill_(1.0)
    assert linear.input_gradient(dy_TE, wanted=False) is None
    assert_near(dy_TE[:, N:], torch.ones(T, N, device=DEVICE).double() @ sb_NR, torch.bfloat16)


@pytest.mark.parametrize("name", CODE_FORMATS)
def test_dropout_reaches_the_adapters_alone(name):
    """Of everything dropped, only the frozen product is left; the mask of the gradient is that of the input."""
    linear, codes, scale, a_RK, sb_NR = made((name, "codes"), torch.float16)
    linear.drop = lora_linear.Dropout(0.5, torch.zeros(1, dtype=torch.int64, device=DEVICE), 0)
    x = draw(T, K, seed=11, dtype=torch.float16)
    x_TE = linear.new_input(T, x)
    x_TE[:, :K] = x
    linear.forward(x_TE)
    dropped = torch.empty_like(x)
    lora_linear.dropout(x, linear.drop.seed, 0, 0.5, dropped)
    assert_near(linear.adapted_input(x_TE)[:, :16], dropped.double() @ a_RK[:16].t(), torch.float16)
    dy_TE = linear.new_gradient(T, x)
    dy_TE[:, :N] = draw(T, N, seed=12, dtype=torch.float16)
    factor = linear.frozen.gradient_factor_N
    plain = rounded(name, dy_TE[:, :N], factor) @ (codes if factor is not None else codes * scale)
    own = (linear.input_gradient(dy_TE).double() - plain) / 2  # half of the inputs are kept, times 2
    of_first, of_second = dy_TE[:, N : N + 16].double() @ a_RK[:16], dy_TE[:, N + 16 :].double() @ a_RK[16:]
    kept = [torch.empty_like(x), torch.empty_like(x)]
    for stream, mask in enumerate(kept):
        lora_linear.dropout(torch.ones_like(x), linear.drop.seed, stream, 0.5, mask)
    assert_near(own * 2, of_first * kept[0] + of_second * kept[1], torch.float16)
    assert sb_NR.abs().max() > 0


@pytest.mark.parametrize("kind", STORED, ids=" ".join)
def test_stacks_that_share_memory_unpack_again_and_a_prepared_one_once(kind):
    linear, *_ = made(kind, torch.bfloat16)
    other, *_ = made(kind, torch.bfloat16, scratch=linear.frozen.scratch)
    x, dy = draw(T, K, seed=3, dtype=torch.bfloat16), draw(T, N, seed=4, dtype=torch.bfloat16)
    x_TE, dy_TE = linear.new_input(T, x), linear.new_gradient(T, dy)
    x_TE[:, :K], dy_TE[:, :N] = x, dy
    wanted = linear.forward(x_TE).clone(), linear.input_gradient(dy_TE).clone()
    other.forward(x_TE)
    other.input_gradient(dy_TE)
    for scratch in (linear.frozen.scratch.codes, linear.frozen.scratch.turned):
        scratch.view(torch.uint8).fill_(7)
    assert torch.equal(linear.forward(x_TE), wanted[0])
    assert torch.equal(linear.input_gradient(dy_TE), wanted[1])
    with linear.frozen.prepared():
        found = [linear.forward(x_TE), linear.input_gradient(dy_TE)]
        linear.frozen.scratch.turned.view(torch.uint8).fill_(7)  # nothing fills it again inside
        assert not torch.equal(linear.input_gradient(dy_TE), wanted[1])
    assert all(map(torch.equal, found, wanted))
    assert torch.equal(linear.input_gradient(dy_TE), wanted[1])


@pytest.mark.parametrize("kind", STORED, ids=" ".join)
def test_the_bare_weight_has_no_adapters(kind):
    linear, codes, scale, *_ = made(kind, torch.bfloat16)
    bare = StackedLinear(lora_linear.Stack(N, K), linear.frozen.bare(N, K))
    x = draw(T, K, seed=3, dtype=torch.bfloat16)
    assert_near(bare.forward(x), rounded(kind[0], x) @ (codes * scale).t(), torch.bfloat16)


@pytest.mark.parametrize("kind", STORED, ids=" ".join)
def test_an_input_that_its_maker_projects_gives_the_same_bits(kind):
    """As the fused activation does, which is given A."""
    linear, *_ = made(kind, torch.bfloat16, bias=True)
    x = draw(T, K, seed=3, dtype=torch.bfloat16)
    x_TE, other = linear.new_input(T, x), linear.new_input(T, x)
    x_TE[:, :K] = x
    wanted, found = linear.forward(x_TE), torch.empty(T, N, device=DEVICE, dtype=torch.bfloat16)

    def fill(a):
        assert a.shape == (linear.rank, K)
        other.copy_(x_TE)

    linear.forward_filled(other, fill, found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", CODE_FORMATS)
def test_a_row_that_is_not_finite_gives_a_product_that_is_not(name):
    linear, *_ = made((name, "codes"), torch.bfloat16)
    x_TE = linear.new_input(T, draw(T, K, dtype=torch.bfloat16)).fill_(1.0)
    x_TE[3, 5], x_TE[9, 0] = float("nan"), float("inf")
    found = linear.forward(x_TE).isfinite().all(dim=1)
    assert found.nonzero().flatten().tolist() == [row for row in range(T) if row not in (3, 9)]


@pytest.mark.parametrize("codes", [eight_bit.CODES, eight_bit.INT8])
@pytest.mark.parametrize("dtype", [torch.float32, *DTYPES])
def test_stored_codes_are_unpacked_in_the_compute_dtype(dtype, codes):
    """Products in 16 bits read codes times scales, rounded once."""
    weight = draw(N, K, seed=1)
    rows, stack = eight_bit.quantize_rows(weight, codes=codes), lora_linear.Stack(N, K, ADAPTERS)
    whole = torch.zeros(stack.buffer_shape, device=DEVICE, dtype=dtype)
    frozen = QuantizedWeight([rows], whole[N:, :K], whole[:N, K:], torch.empty_like(whole))
    wanted = (rows.codes.double() * rows.scale.double()[:, None]).to(dtype)
    assert torch.equal(frozen.buffer()[:N, :K], wanted)
    mixed = torch.empty(2 * N, K, device=DEVICE, dtype=dtype)
    unpack([rows, weight.to(dtype)], mixed)
    assert torch.equal(mixed[:N], wanted)
    assert torch.equal(mixed[N:], weight.to(dtype))


@pytest.mark.parametrize("name", CODE_FORMATS)
def test_a_part_can_be_placed_in_other_memory(name):
    rows = CODE_FORMATS[name].quantize(draw(N, K))
    tensors = list(part_tensors(rows).values())
    there = placed(CODE_FORMATS[name].empty(N, K, "meta"), iter(tensors))
    assert type(there) is type(rows)
    assert [one.data_ptr() for one in part_tensors(there).values()] == [one.data_ptr() for one in tensors]
