"""Products that the engine launches in MXFP8 are compiled ahead for RTX 50, of which no card is at hand."""

import os

import pytest
import torch

from burnish_engine.advise.predict.fast_shape import stacks
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.recipe import AdapterSection
from burnish_engine.models.decoder.frozen.coded_weights import CodeScratch, StoredCodedWeight
from burnish_engine.models.decoder.frozen.declared import coded_bytes
from burnish_engine.models.decoder.frozen.mxfp8_format import Mxfp8Format
from burnish_kernels.eight_bit_linear import op as eight_bit
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.mxfp8_linear import op
from burnish_kernels.mxfp8_linear.tiles import COMPILED

META = torch.device("meta")
WORDS = {torch.bfloat16: "*bf16", torch.float16: "*fp16"}
STRIDES = ("adapter_output", "adapter_rank", "scale_output", "scale_column")

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="functions are interpreted ones here")


@pytest.fixture
def launches(monkeypatch):
    """The arguments of each launch of the product, in place of the launch."""
    kernel = pytest.importorskip("burnish_kernels.mxfp8_linear.kernel")
    seen = []
    recorder = type("Recorder", (), {"__getitem__": lambda _self, _grid: lambda **words: seen.append(words)})()
    monkeypatch.setattr(kernel, "mxfp8_linear_kernel", recorder)
    monkeypatch.setattr(kernel, "launch_quantize_rows", lambda *_: None)
    for name in ("project_input", "project_gradient", "add_adapter_gradient"):
        monkeypatch.setattr(lora_linear, name, lambda *_: None)
    monkeypatch.setattr(op, "use_eight_bit_kernels", lambda *_: True)
    monkeypatch.setattr(op, "choose_tile", lambda _: COMPILED)
    return seen


def listed():
    """Types and constants of the products that are compiled ahead for these cards, each with its options."""
    from burnish_kernels.mxfp8_linear import cases, kernel

    found = [one for one in cases.compilations() if one.function is kernel.mxfp8_linear_kernel]
    assert all(120 in one.capabilities and 120 in one.instructions for one in found)
    return [
        (one.signature["out_ptr"], dict(one.constants), (one.num_warps, one.num_stages, one.max_registers))
        for one in found
    ]


@pytest.mark.parametrize("name", ["qwen3-0.6b", "llama-3.2-1b", "qwen3-4b", "gemma-3-1b", "qwen2.5-0.5b"])
@pytest.mark.parametrize("rank", [4, 16, 64])
@pytest.mark.parametrize("dtype", WORDS)
def test_every_product_of_a_run_is_compiled_ahead(launches, name, rank, dtype):
    """With adapters, with dropout (which keeps them out of the product for dX), and on stacks without any."""
    spec, form, known = shape(name), Mxfp8Format(), listed()
    for targets in (["q_proj"], ["q_proj", "gate_proj"], ["all-linear"]):
        section = AdapterSection(rank=rank, targets=targets)
        for one in stacks(spec, section, spec.layers[0]).values():
            adapters = (lora_linear.StackedAdapter(0, one.outputs, one.rank, 1.0),) if one.rank else ()
            stack = lora_linear.Stack(one.outputs, one.inputs, adapters)
            a_RK = torch.empty(stack.R, stack.K, dtype=dtype, device=META)
            sb_NR = torch.empty(stack.N, stack.R, dtype=dtype, device=META)
            scratch = CodeScratch(
                *(torch.empty(stack.N * stack.K, dtype=eight_bit.CODES, device=META) for _ in range(2))
            )
            weight = StoredCodedWeight(form, a_RK, sb_NR, scratch, form.empty(stack.N, stack.K, META))
            for drop in (None, lora_linear.Dropout(0.1, torch.zeros(1, dtype=torch.int64, device=META), 0)):
                weight.forward(torch.empty(64, stack.K + stack.R, dtype=dtype, device=META), stack, drop=drop)
                gradient = torch.empty(64, stack.N + stack.R, dtype=dtype, device=META)
                weight.input_gradient(gradient, stack, wanted=True, drop=drop)
    assert len(launches) >= 3 * 4 * 2 * 2
    for words in launches:
        constants = {key: value for key, value in words.items() if key.isupper() and key not in {"T", "N", "K", "R"}}
        constants |= {key: 1 for key in STRIDES if words[key] == 1}
        options = words["num_warps"], words["num_stages"], words["maxnreg"]
        assert (WORDS[words["out_ptr"].dtype], constants, options) in known
        pointers = [value for key, value in words.items() if key.endswith("_ptr") and value is not None]
        assert all(one.storage_offset() * one.element_size() % 16 == 0 for one in pointers)
        aligned = ("N", "K", "R", "x_stride", "weight_stride", "narrow_stride", "out_stride")
        assert all(words[key] % 16 == 0 for key in aligned)


@pytest.mark.parametrize(("kind", "quantize"), [("mxfp8", op.quantize_rows), ("fp8", eight_bit.quantize_rows)])
def test_an_operands_codes_are_counted_to_the_byte(kind, quantize):
    """With the exponents of MXFP8; a scale for a whole row is not counted."""
    rows = quantize(torch.ones(5, 96))
    exponents = rows.scale.nbytes if kind == "mxfp8" else 0
    assert rows.codes.nbytes + exponents == 5 * coded_bytes(96, kind)
