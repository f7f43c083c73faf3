"""NF4: the bytes and values of bitsandbytes, stacks, pasting, refusals."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from burnish_kernels.eight_bit_linear.rows import CODES, INT8, LARGEST_OF
from burnish_kernels.nf4 import op, reference
from burnish_kernels.nf4.op import (
    Nf4,
    dequantize,
    dequantize_stack,
    eight_bit_codes,
    eight_bit_row_scale,
    from_bitsandbytes,
    paste,
    quantize,
)

# Written by bitsandbytes 0.50.2 with plain PyTorch operations, in the form of its checkpoints; what was quantized is
# beside it as `.original`, what it made of it as `.dequantized`. "rows": bf16, a row of zeros, more blocks than one
# nested block; "ties": fp32, values on, above and below each threshold, blocks that run over row ends; "odd": fp16,
# an odd count of values; "single": scales that are not quantized.
GOLDEN = load_file(Path(__file__).with_name("bitsandbytes.safetensors"))
NAMES = ("rows", "ties", "odd", "single")
STATE = "rows.weight.quant_state.bitsandbytes__nf4"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def stored(name, device="cpu"):
    return from_bitsandbytes({key: value.to(device) for key, value in GOLDEN.items()}, f"{name}.weight")


def changed(**state):
    """The golden tensors with another quantization state for "rows"."""
    found = json.loads(bytes(GOLDEN[STATE].tolist())) | state
    found = {key: value for key, value in found.items() if value is not None}
    return GOLDEN | {STATE: torch.tensor(list(json.dumps(found).encode()), dtype=torch.uint8)}


@pytest.mark.parametrize("name", NAMES)
def test_quantize_gives_the_bytes_of_bitsandbytes(name):
    expected = stored(name)
    found = quantize(GOLDEN[f"{name}.original"], double=name != "single")
    assert found.shape == expected.shape
    assert found.tensors().keys() == expected.tensors().keys()
    for field, tensor in expected.tensors().items():
        assert torch.equal(found.tensors()[field], tensor), field


@pytest.mark.parametrize("name", NAMES)
def test_dequantize_gives_the_values_of_bitsandbytes(name):
    expected = GOLDEN[f"{name}.dequantized"]
    if INTERPRETED and expected.dtype == torch.bfloat16:
        pytest.skip("the interpreter cuts bf16 off where hardware rounds")
    assert torch.equal(dequantize(stored(name), dtype=expected.dtype), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_dequantize_on_a_gpu_gives_the_values_of_bitsandbytes(name):
    expected = GOLDEN[f"{name}.dequantized"]
    assert torch.equal(dequantize(stored(name, "cuda"), dtype=expected.dtype).cpu(), expected)


@pytest.mark.gpu
def test_quantize_on_a_gpu_gives_the_same_bytes():
    weight = (torch.randn(300, 1000) * 0.02).bfloat16()
    ours, theirs = quantize(weight.cuda()).to("cpu"), quantize(weight)
    assert torch.equal(ours.packed, theirs.packed)
    torch.testing.assert_close(ours.offset, theirs.offset)  # a mean: summed in another order


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_an_installed_bitsandbytes_agrees(dtype):
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = (torch.randn(130, 192, generator=torch.Generator().manual_seed(1)) * 0.02).to(dtype)
    packed, state = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True, blocksize=64)
    found = quantize(weight)
    assert torch.equal(found.packed, packed.flatten())
    assert torch.equal(found.nested_absmax, state.state2.absmax)
    assert torch.equal(found.offset, state.offset.reshape(1))
    # Its processor backend looks levels up in a table of 65,536 steps, so a value beside a threshold may get the
    # neighboring level; its other backends search, as we do.
    apart = (found.absmax_q.int() - state.absmax.int()).abs()
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) < 0.02
    theirs = from_bitsandbytes(
        {"w": packed} | {f"w.{key}": value for key, value in state.as_dict(packed=True).items()}, "w"
    )
    if not (INTERPRETED and dtype == torch.bfloat16):
        assert torch.equal(dequantize(theirs, dtype=dtype), functional.dequantize_4bit(packed, state))


def test_memory_is_four_and_an_eighth_bits_a_value():
    found = quantize(torch.randn(256, 1024))
    assert found.double
    assert 8 * (found.nbytes - found.code256.nbytes) / (256 * 1024) == pytest.approx(4.127, abs=1e-3)
    assert 8 * quantize(torch.randn(256, 1024), double=False).nbytes / (256 * 1024) == 4.5


@pytest.mark.full
@pytest.mark.parametrize("shape", [(64, 48), (70, 33)])
def test_pieces_give_what_the_whole_gives(monkeypatch, shape):
    weight = torch.randn(*shape)
    whole = quantize(weight)
    values = dequantize(whole, dtype=torch.float32)
    monkeypatch.setitem(op.CHUNK, "cpu", 128)
    parts = quantize(weight)
    assert all(torch.equal(parts.tensors()[name], tensor) for name, tensor in whole.tensors().items())
    assert torch.equal(dequantize(parts, dtype=torch.float32), values)


def test_zeros_stay_zeros_though_their_scale_does_not():
    weight = torch.randn(8, 64)
    weight[2] = 0
    assert not dequantize(quantize(weight), dtype=torch.float32)[2].any()


@pytest.mark.full
def test_a_stack_mixes_quantized_and_plain_parts():
    top, bottom = quantize(torch.randn(5, 64)), quantize(torch.randn(3, 64), double=False)
    plain = torch.randn(2, 64)
    buffer = torch.full((12, 80), 7.0)
    dequantize_stack([top, plain, bottom], buffer[:10, :64], torch.float32)
    assert torch.equal(buffer[:5, :64], dequantize(top, dtype=torch.float32))
    assert torch.equal(buffer[5:7, :64], plain)
    assert torch.equal(buffer[7:10, :64], dequantize(bottom, dtype=torch.float32))
    assert (buffer[10:] == 7).all()
    assert (buffer[:, 64:] == 7).all()


@pytest.mark.full
@pytest.mark.parametrize("kind", [CODES, INT8])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns", [64, 39])
def test_weights_one_under_another_fill_one_scratch_in_8_bits(columns, transposed, kind):
    parts = [quantize(torch.randn(5, columns)), quantize(torch.randn(3, columns), double=False)]
    scratch = torch.full((columns, 8) if transposed else (8, columns), 9, dtype=torch.uint8).view(kind)
    stacked, first = scratch.t() if transposed else scratch, 0
    for part in parts:
        rows = slice(first, first := first + part.shape[0])
        scale = eight_bit_row_scale(part, kind)
        eight_bit_codes(part, scale, scratch[:, rows] if transposed else scratch[rows], transposed=transposed)
        values = dequantize(part, dtype=torch.float32)
        torch.testing.assert_close(scale, values.abs().amax(dim=1) / LARGEST_OF[kind])
        found = stacked[rows].float() * scale[:, None]
        torch.testing.assert_close(
            found,
            values,
            rtol=2**-4 if kind == CODES else 0,
            atol=float(scale.max()) * (2**-9 if kind == CODES else 0.501),
        )


@pytest.mark.parametrize("kind", [CODES, INT8])
def test_8_bit_rows_of_zeros_stay_zeros(kind):
    weight = torch.randn(4, 64)
    weight[2] = 0
    packed = quantize(weight, double=False)
    codes = eight_bit_codes(packed, eight_bit_row_scale(packed, kind), torch.empty(4, 64, dtype=kind))
    assert not codes[2].float().any()
    assert codes[[0, 1, 3]].float().abs().amax(dim=1).tolist() == [LARGEST_OF[kind]] * 3


@pytest.mark.parametrize(("rows", "columns", "rank"), [(5, 64, 16), (70, 33, 48), (1, 1, 1), (4, 4, 0)])
def test_paste_surrounds_the_weight(rows, columns, rank):
    buffer = torch.full((rows + rank, columns + rank + 3), 7.0)[:, : columns + rank]
    a, b = torch.randn(rank, columns), torch.randn(rank, rows).t()
    paste(buffer, rows, columns, a, b)
    assert torch.equal(buffer[rows:, :columns], a)
    assert torch.equal(buffer[:rows, columns:], b)
    assert (buffer[:rows, :columns] == 7).all()
    assert (buffer[rows:, columns:] == 7).all()


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (changed(quant_type="fp4"), "quant_type 'fp4'"),
        (changed(blocksize=128), "blocksize 128"),
        (changed(nested_blocksize=64), "nested_blocksize 64"),
        (changed(nested_offset=None), "nested_offset None"),
        (changed(shape=[4, 4, 4]), r"shape \[4, 4, 4\]"),
        (changed(shape=[-68, -256]), "shape"),
        (changed(shape=[68, 255]), "packed must be"),
        (changed(shape=None), "shape None"),
        (GOLDEN | {STATE: torch.tensor(list(b"[1]"), dtype=torch.uint8)}, "not a JSON object"),
        (GOLDEN | {STATE: torch.tensor(list(b"{\xff"), dtype=torch.uint8)}, "not JSON"),
        (GOLDEN | {STATE: torch.zeros(70000, dtype=torch.uint8)}, "70000"),
        (GOLDEN | {STATE: torch.zeros(4)}, "float32"),
        (GOLDEN | {f"{STATE}x": GOLDEN[STATE]}, "one quant_state"),
        (GOLDEN | {"rows.weight.quant_map": torch.linspace(-1, 1, 16)}, "quant_map"),
        (GOLDEN | {"rows.weight.absmax": GOLDEN["single.weight.absmax"]}, "absmax_q must be"),
        (GOLDEN | {"rows.weight.nested_absmax": torch.zeros(3)}, "nested_absmax must be"),
        ({key: value for key, value in GOLDEN.items() if key != "rows.weight.absmax"}, "absmax is not"),
        ({key: value for key, value in GOLDEN.items() if key != "rows.weight"}, "weight is not"),
        ({key: value for key, value in GOLDEN.items() if key != STATE}, "one quant_state"),
    ],
)
def test_unsupported_checkpoints_are_refused(tensors, words):
    with pytest.raises(ValueError, match=words):
        from_bitsandbytes(tensors, "rows.weight")


def test_another_quantization_is_named():
    state = "rows.weight.quant_state.bitsandbytes__fp4"
    tensors = {key: value for key, value in GOLDEN.items() if key != STATE} | {state: GOLDEN[STATE]}
    with pytest.raises(ValueError, match="bitsandbytes__fp4"):
        from_bitsandbytes(tensors, "rows.weight")


def test_bytes_may_be_stored_as_other_numbers():
    tensors = GOLDEN | {"rows.weight": GOLDEN["rows.weight"].flatten().view(torch.bfloat16).unsqueeze(1)}
    assert torch.equal(from_bitsandbytes(tensors, "rows.weight").packed, stored("rows").packed)


def test_bad_arguments_are_named():
    weight = quantize(torch.randn(4, 64))
    for wrong in (torch.zeros(64), torch.zeros(4, 64, dtype=torch.int8), torch.zeros(0, 64)):
        with pytest.raises(ValueError, match="matrix"):
            quantize(wrong)
    with pytest.raises(ValueError, match="dtype"):
        dequantize(weight, dtype=torch.float64)
    with pytest.raises(ValueError, match="out"):
        dequantize(weight, dtype=torch.float32, out=torch.zeros(64, 4).t())
    with pytest.raises(ValueError, match="out"):
        dequantize(weight, dtype=torch.float32, out=torch.zeros(4, 64, dtype=torch.float16))
    for out, scale in (
        (torch.empty(64, 4, dtype=CODES), torch.ones(4)),
        (torch.empty(4, 64), torch.ones(4)),
        (torch.empty(4, 64, dtype=CODES), torch.ones(5)),
    ):
        with pytest.raises(ValueError, match="must be"):
            eight_bit_codes(weight, scale, out)
    with pytest.raises(ValueError, match="columns"):
        dequantize_stack([weight, torch.zeros(2, 63)], torch.zeros(6, 64), torch.float32)
    with pytest.raises(ValueError, match="do not make"):
        dequantize_stack([weight], torch.zeros(6, 64), torch.float32)
    with pytest.raises(ValueError, match="needs"):
        dequantize(Nf4(weight.packed, (4, 64)), dtype=torch.float32)
    with pytest.raises(ValueError, match="do not fit"):
        paste(torch.zeros(6, 66), 4, 64, torch.zeros(2, 64), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="dtypes"):
        paste(torch.zeros(6, 66), 4, 64, torch.zeros(2, 64).half(), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="side by side"):
        paste(torch.zeros(66, 6).t(), 4, 64, torch.zeros(2, 64), torch.zeros(4, 2))


def test_the_dynamic_map_is_symmetric_but_for_its_end():
    code = reference.dynamic_map()
    assert code.shape == (256,)
    assert torch.equal(code, code.sort().values)
    assert code[127] == 0
    assert code[255] == 1
    assert torch.equal(code[128:255], -code[:127].flip(0))
