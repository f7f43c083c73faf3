"""The whole decoder with 8-bit products beside a model of transformers and PEFT that rounds the same operands."""

import os
from collections import Counter, defaultdict

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.decoder.frozen import coded_weights
from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS
from burnish_engine.models.decoder.frozen.coded_weights import Nf4CodedWeight, StoredCodedWeight
from burnish_engine.models.decoder.frozen.declared import norm_coded
from burnish_engine.models.decoder.frozen.format_choice import why_not_eight
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.families import family
from burnish_kernels.eight_bit_linear import op, reference
from burnish_kernels.eight_bit_linear.op import quantize_rows
from burnish_kernels.eight_bit_linear.projected.op import project_codes

from support.models import parity, tiny_models

BATCH = parity.micro_batch()
DENSE = [name for name in tiny_models.SHAPES if name not in tiny_models.MIXTURES]
WAYS = {
    name: options
    for kind in CODE_FORMATS
    for name, options in (
        (kind, {"eight_bits": EightBitUse(kind, kind)}),
        (f"nf4 {kind}", {"quantize": True, "eight_bits": EightBitUse("", kind)}),
    )
}


LEVELED = ["llama", "gemma3", "lfm2"]
"""Families of which every save level is compared."""


def pairs(families):
    """Each family with one format, stored and from NF4; the first and that of odd widths with all. The rest: `long`.

    Widths decide how INT8 is rotated, and whether blocks of MXFP8 fit.
    """
    for row, one in enumerate(families):
        for column, way in enumerate(WAYS):
            usual = row == 0 or one == "lfm3" or column // 2 == row % len(CODE_FORMATS)
            yield pytest.param(one, way, marks=() if usual else pytest.mark.long)


def of_rows(codes, *, rotated=False):
    """Functions that round operands with a scale a row: rows, and of a weight its factor of the gradient with codes.

    What is no gradient may be rotated, and is rotated back when it is rounded.
    """

    def quantized(x, factor=None):
        block = reference.rotation_of(x.shape[1]) if rotated and factor is None else 0
        rows = quantize_rows(x, factor_K=factor, codes=codes, rotation=block)
        return reference.rotate(rows.codes.float(), block) if block else rows.codes.float(), rows.scale

    def rounded(x, factor=None):
        found, scale = quantized(x, factor)
        return found * scale[:, None]

    def weight(w):
        found, scale = quantized(w)
        return found * scale[:, None], scale, found

    return rounded, weight


def in_blocks():
    """The same with a power of two for each 32 columns, and for each 32 x 32 of a weight."""

    def rounded(blocks, dims):
        scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(dim=dims, keepdim=True) / 448)))
        scale = torch.where(scale > 0, scale, 1.0)
        return (blocks / scale).to(torch.float8_e4m3fn).float() * scale

    def weight(w):
        tiles = w.unflatten(1, (-1, 32)).unflatten(0, (-1, 32))
        values = rounded(tiles, (1, 3)).reshape(w.shape)
        return values, None, values

    return lambda x, _=None: rounded(x.unflatten(1, (-1, 32)), (2,)).flatten(1), weight


ROUNDING = {
    "int8": of_rows(op.INT8, rotated=True),
    "int8 behind attention": of_rows(op.INT8),
    "fp8": of_rows(op.CODES),
    "mxfp8": in_blocks(),
}


class RoundedProduct(torch.autograd.Function):
    """X Wᵀ of rounded operands, and the gradient of X from the same codes of W."""

    @staticmethod
    def forward(ctx, x, weight, kind):
        rounded, of_weight = ROUNDING[kind]
        values, ctx.factor, ctx.codes = of_weight(weight.float())
        ctx.rounded = rounded
        return (rounded(x.flatten(0, -2).contiguous()) @ values.t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        found = ctx.rounded(dy.flatten(0, -2).contiguous(), ctx.factor)
        return (found @ ctx.codes).view(*dy.shape[:-1], -1), None, None


class RoundingStack:
    """Linear layers that share their input, multiplied as one: the first computes, and each returns its rows.

    One scale for the gradients of all, as ours have.
    """

    def __init__(self, layers, kind):
        self.kind, self.weight = kind, torch.cat([layer.weight.detach() for layer in layers])
        self.seen, self.product = None, None
        first = 0
        for layer in layers:
            layer.forward = self.forward_of(slice(first, first + len(layer.weight)), layer.bias)
            first += len(layer.weight)

    def forward_of(self, rows, bias):
        def forward(x):
            if self.seen is not x:
                self.seen, self.product = x, RoundedProduct.apply(x, self.weight, self.kind)
            y = self.product[..., rows]
            return y if bias is None else y + bias

        return forward


class RoundedLogits(torch.autograd.Function):
    """X Wᵀ of operands rounded to rotated INT8; the gradient of X from W as it is."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        rounded = ROUNDING["int8"][0]
        return (rounded(x.flatten(0, -2).contiguous()) @ rounded(weight.float()).t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.weight, None


def rounding(model, folder, kind):
    """The same model, whose decoder's linear layers round as ours do, and its head."""
    if EightBitUse(kind, kind).logits_in_int8:
        head = model.get_output_embeddings()
        head.forward = lambda x: RoundedLogits.apply(x, head.weight.detach())
    spec, stacks = parity.model_source(folder).spec, defaultdict(list)
    for module in sorted(family(spec.family).modules(spec), key=lambda one: one.first_row):
        layer = model.get_submodule(f"base_model.model.{module.path}")
        stacks[module.layer, module.stack].append(getattr(layer, "base_layer", layer))
    for (layer, stack), layers in stacks.items():
        attends = stack == "mixer_out" and spec.layers[layer].attends
        RoundingStack(layers, f"{kind} behind attention" if attends and kind == "int8" else kind)
    return model


@pytest.fixture(scope="module")
def folders(request, tmp_path_factory):
    """A tiny checkpoint and an adapter of it, with random B."""
    base = tiny_models.make(request.param, tmp_path_factory.mktemp(request.param) / "base")
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5)


@pytest.mark.full
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels have results in 16 bits alone")
@pytest.mark.parametrize(("folders", "way"), pairs(DENSE), indirect=["folders"])
def test_loss_and_gradients_are_those_of_the_rounded_operands(folders, way, monkeypatch):
    """In fp32, so that few numbers fall to another code than the reference's; each that does changes it."""
    kind = WAYS[way]["eight_bits"].products
    if reason := why_not_eight(kind, Recipe(), parity.model_source(folders[0]).spec, "bf16", None):
        with pytest.raises(ValueError, match="32"):  # what is refused before a run would not load
            parity.fast(*folders, **WAYS[way])
        assert "32" in reason
        return
    monkeypatch.setattr(op, "OUTPUTS", (torch.float32,))
    tuned = parity.peft(*folders, quantize="quantize" in WAYS[way])
    _, exact = parity.peft_gradients(tuned, BATCH)
    loss, wanted = parity.peft_gradients(rounding(tuned, folders[0], kind), BATCH)
    found_loss, found = parity.fast(*folders, **WAYS[way]).gradients(BATCH)
    assert found_loss == pytest.approx(loss, rel=1e-3)
    share = 0.5 if kind == "int8" else 0.3  # INT8 itself is nearer to what is exact
    assert parity.distance(found, wanted) < share * parity.distance(exact, wanted)
    monkeypatch.undo()
    _, short = parity.fast(*folders, dtype=torch.bfloat16, **WAYS[way]).gradients(BATCH)
    lent = parity.model_source(folders[0]).spec.has_lent_keys  # with gradients of several layers in bf16
    assert parity.distance(short, exact) < (1.8 if lent else 1.5) * parity.distance(wanted, exact)


@pytest.mark.full
@pytest.mark.parametrize(("folders", "way"), pairs(LEVELED), indirect=["folders"])
def test_save_levels_and_host_memory_change_no_bit(folders, way):
    options = {"dtype": torch.bfloat16, **WAYS[way]}
    ours = parity.fast(*folders, **options)
    kinds = {type(stack.frozen) for layer in ours.loaded.decoder.layers for stack in layer.stacks}
    assert kinds == {Nf4CodedWeight if "quantize" in WAYS[way] else StoredCodedWeight}
    count = len(ours.loaded.decoder.layers)
    there = parity.fast(*folders, layers_on_host=frozenset(range(count)), **options)
    for chunk in (0, 48):
        for one in (ours, there):
            one.loaded.decoder.chunk_feed_forward(chunk)
        loss, wanted = ours.gradients(BATCH, "products")
        for level in LEVEL_NAMES:
            found_loss, found = ours.gradients(BATCH, level)
            assert found_loss == loss
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        found_loss, found = there.gradients(BATCH, "input")
        assert found_loss == loss
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


QUANTIZED = [
    ("llama", "fp8", (1, 3)), ("llama", "int8", (4, 3)), ("llama", "mxfp8", (4, 4)),
    ("gemma3", "fp8", (1, 2)), ("gemma3", "int8", (4, 2)), ("olmo2", "fp8", (1, 2)),
]  # fmt: skip
"""Inputs and gradients of a layer's four stacks that are quantized in a pass of their own. In FP8 the norms and the
activation quantize theirs; the others are the mixer's output, and the gradients of gate and up, of the mixer's input
and, without a norm behind it, of down's output."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("folders", "kind", "own", "device"),
    [
        *((*one, "cpu") for one in QUANTIZED),
        *(pytest.param(*one, "cuda", marks=pytest.mark.gpu) for one in QUANTIZED if one[1] != "mxfp8"),
    ],
    indirect=["folders"],
)
@pytest.mark.parametrize(("level", "chunk"), [("products", 0), ("narrow", 48), ("input", 0)])
def test_what_norms_and_the_activation_quantize_has_the_bits_of_a_pass_of_its_own(
    folders, kind, own, device, level, chunk, monkeypatch
):
    ways = {"dtype": torch.bfloat16, "device": torch.device(device), "eight_bits": EightBitUse(kind, kind)}
    ours, counts, form = parity.fast(*folders, **ways), Counter(), type(CODE_FORMATS[kind])
    ours.loaded.decoder.chunk_feed_forward(chunk)
    for quantize in (form.operand, form.gradient):

        def counted(*args, _quantize=quantize):
            counts[_quantize.__name__] += 1
            return _quantize(*args)

        monkeypatch.setattr(form, quantize.__name__, counted)
    loss, found = ours.gradients(BATCH, level)
    if device == "cpu" and (level, chunk) == ("products", 0):
        layers, spec = len(ours.loaded.decoder.layers), ours.loaded.decoder.spec
        if spec.pre_norms:  # without them `norm` quantizes what it would have normalized
            handed = [len(norm_coded(spec, kind, turned=turned)) for turned in (False, True)]
            assert own == (4 - handed[0] - (kind == "fp8"), 4 - handed[1]), "the predictions count the same"
        assert counts == {"operand": layers * own[0], "gradient": layers * own[1] - 1}  # the lowest one is not wanted
    for name in ("new_input_codes", "new_gradient_codes"):
        monkeypatch.setattr(StackedLinear, name, lambda _self, _tokens: None)
    apart_loss, apart = ours.gradients(BATCH, level)
    assert apart_loss == loss
    assert all(torch.equal(apart[name], found[name]) for name in apart)


@pytest.mark.full
def test_channels_far_above_the_others_cost_int8_less_than_fp8(tmp_path):
    """Norms that raise some channels, as those of large models do: in INT8 columns are rotated."""
    base = tiny_models.make("qwen3", tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    for name, weight in weights.items():
        if "layernorm" in name:
            weight[[5, 37]] *= 8
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5)
    _, exact = parity.fast(base, adapter).gradients(BATCH)
    errors = {}
    for kind in ("int8", "fp8"):
        found = parity.fast(base, adapter, dtype=torch.bfloat16, eight_bits=EightBitUse(kind, kind)).gradients(BATCH)[1]
        errors[kind] = parity.distance(found, exact)
    assert errors["int8"] < 0.5 * errors["fp8"]


@pytest.mark.full
def test_stored_in_fp8_and_multiplied_in_16_bits_dora_works(tmp_path):
    """Its magnitudes are measured on the stored weights."""
    base = tiny_models.make("llama", tmp_path / "base")
    adapter = tiny_models.lora(base, tmp_path / "adapter", dora=True)
    ours = parity.fast(base, adapter, eight_bits=EightBitUse("fp8", ""))
    stack = ours.loaded.decoder.layers[0].weights.down
    rows = stack.frozen.buffer()[: stack.outputs, : stack.inputs]
    torch.testing.assert_close(stack.magnitudes.frozen_N, rows.norm(dim=1))
    _, plain = parity.fast(base, adapter).gradients(BATCH)
    assert 0 < parity.distance(ours.gradients(BATCH)[1], plain) < 0.2


@pytest.mark.gpu
@pytest.mark.parametrize("way", [way for way in WAYS if "mxfp8" not in way])
def test_a_gradient_quantized_on_the_way_has_the_bits_of_one_quantized_in_a_pass_of_its_own(tmp_path, monkeypatch, way):
    base = tiny_models.make("llama", tmp_path / "base")
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5)
    ours = parity.fast(base, adapter, dtype=torch.bfloat16, device=torch.device("cuda"), **WAYS[way])
    filled = []

    def project(*args, **options):
        filled.append(float(options["largest_T"].max()))
        return project_codes(*args, **options)

    monkeypatch.setattr(coded_weights, "project_codes", project)
    loss, on_the_way = ours.gradients(BATCH)
    assert len(filled) == len(ours.loaded.decoder.layers)
    assert all(largest > 0 for largest in filled)
    monkeypatch.setattr(StackedLinear, "new_largest", lambda _self, _dy: None)
    apart_loss, apart = ours.gradients(BATCH)
    assert apart_loss == loss
    assert all(torch.equal(apart[name], on_the_way[name]) for name in apart)
