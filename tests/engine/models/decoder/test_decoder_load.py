"""Every weight lands in its place, in 16 bits or 4, and a checkpoint that does not fit is refused by name."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.bench.shapes import RandomWeights
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder, load_decoder
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.families import family, why_not_fast
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_kernels.adamw.layout import FlatLayout
from burnish_kernels.nf4 import op as nf4

from support.models import parity, tiny_models
from support.models.bitsandbytes_files import save_quantized
from support.models.tiny import make_tokenizer

BATCH = parity.micro_batch()
STACKS = ("mixer_in", "mixer_out", "gate_up", "down")
LEFT = "model.layers.0.mlp.up_proj"  # as in published dynamic checkpoints: one of a stack, and a whole stack
KEPT = [LEFT, "model.layers.1.self_attn.k_proj", "model.layers.1.mlp.down_proj"]


@pytest.fixture(scope="module")
def adapters(bases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    made = {}

    def adapter(name):
        if name not in made:
            made[name] = tiny_models.lora(bases(name), folder / name, rank=5)
        return made[name]

    return adapter


def rounded(model, kept=(), *, dtype=torch.float32):
    """Give a transformers model the weights that NF4 leaves of its own."""
    with torch.no_grad():
        for name, module in model.named_modules():
            path = name.removeprefix("base_model.model.").removesuffix(".base_layer")
            inside = path.startswith("model.layers.") and "lora_" not in path
            apart = path.rpartition(".")[2] in tiny_models.WITHOUT_ADAPTER
            if isinstance(module, torch.nn.Linear) and inside and path not in kept and not apart:
                module.weight.copy_(nf4.dequantize(nf4.quantize(module.weight), dtype=dtype))
    return model


@pytest.mark.full
@pytest.mark.parametrize("name", tiny_models.SHAPES)
def test_quantized_on_load_it_computes_with_the_dequantized_weights(bases, adapters, name):
    theirs = rounded(parity.peft(bases(name), adapters(name)))
    ours = parity.fast(bases(name), adapters(name), quantize=True)
    exact = parity.peft_logits(parity.peft(bases(name), adapters(name)), BATCH)
    wanted = parity.peft_logits(theirs, BATCH)
    assert parity.distance(wanted, exact) > 0.01
    assert parity.same_logits(ours.logits(BATCH), wanted)
    _, gradients = parity.peft_gradients(theirs, BATCH)
    for keep in ("products", "attention"):
        assert parity.worst(ours.gradients(BATCH, keep)[1], gradients) < 1e-4


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("level", "times"), [("products", 8), ("narrow", 8), ("attention", 10)])
def test_tiles_share_what_was_unpacked(bases, adapters, monkeypatch, level, times):
    """Each matrix once forward and once backward, qkv and o once more where they are computed again; the same bits."""
    real, found = nf4.dequantize_stack, []
    for rows in (0, 16):
        ours, count = parity.fast(bases("llama"), adapters("llama"), quantize=True), []
        ours.loaded.decoder.chunk_feed_forward(rows)
        monkeypatch.setattr(nf4, "dequantize_stack", lambda *given: (count.append(1), real(*given)))  # noqa: B023
        found.append(ours.gradients(parity.micro_batch(), level))
        assert len(count) == times * len(ours.loaded.decoder.layers)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    assert parity.worst(found[0][1], found[1][1]) < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_quantizing_loses_nothing_before_it_rounds(tmp_path, stored):
    """Whatever type is stored and computed in, the 4 bits are those of the stored numbers."""
    base = tiny_models.make("llama", tmp_path / "base", dtype=stored)
    weights = load_file(base / "model.safetensors")
    for dtype in (torch.float32, torch.bfloat16):
        loaded = load_decoder(parity.model_source(base), DecoderOptions(dtype, parity.CPU, 64, quantize=True))
        for index, layer in enumerate(loaded.decoder.layers):
            wanted = nf4.quantize(weights[f"model.layers.{index}.self_attn.o_proj.weight"])
            (found,) = layer.weights.mixer_out.frozen.parts
            assert torch.equal(found.packed, wanted.packed)
            assert torch.equal(found.absmax_q, wanted.absmax_q)


@pytest.mark.full
@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16])
@pytest.mark.parametrize("double", [True, False])
def test_a_checkpoint_of_bitsandbytes_is_the_decoder_quantized_here(bases, adapters, tmp_path, double, storage):
    base = bases("llama")
    folder = save_quantized(base, tmp_path / "quantized", double=double, storage=storage)
    stored = parity.fast(folder, adapters("llama"), quantize=True)
    if double:
        here = parity.fast(base, adapters("llama"), quantize=True)
        pairs = zip(stored.loaded.decoder.layers, here.loaded.decoder.layers, strict=True)
        for one, other in pairs:
            for first, second in zip(one.stacks, other.stacks, strict=True):
                assert torch.equal(first.frozen.buffer(), second.frozen.buffer())
        assert torch.equal(stored.logits(BATCH), here.logits(BATCH))
    theirs = parity.peft_logits(parity.peft(base, adapters("llama")), BATCH)
    assert 0.01 < parity.distance(stored.logits(BATCH), theirs) < 0.5


@pytest.mark.full
def test_what_a_dynamic_checkpoint_left_in_16_bits_stays_so(tmp_path):
    base = tiny_models.make("llama", tmp_path / "base", dtype=torch.bfloat16)
    adapter = tiny_models.lora(base, tmp_path / "adapter")
    folder = save_quantized(base, tmp_path / "dynamic", KEPT)
    ours = parity.fast(folder, adapter, quantize=True)
    theirs = rounded(parity.peft(base, adapter), KEPT)
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(theirs, BATCH))
    assert parity.worst(ours.gradients(BATCH)[1], parity.peft_gradients(theirs, BATCH)[1]) < 1e-4
    gate, up = ours.loaded.decoder.layers[0].weights.gate_up.frozen.parts
    assert isinstance(gate, nf4.Nf4)
    assert torch.equal(up, load_file(base / "model.safetensors")[f"{LEFT}.weight"].float())


def test_such_a_checkpoint_is_let_through(bases, tmp_path):
    folder = save_quantized(bases("llama"), tmp_path / "quantized", KEPT)
    make_tokenizer(folder, vocab_size=384)
    source = open_model(str(folder))
    assert source.stored_quantized
    assert why_not_fast(source.config, source.spec, nf4=True) == ""
    assert why_not_fast(source.config, source.spec) == "is stored quantized"
    speaker, reason = load_for_generation(source, None, "fp32", parity.CPU)
    assert (speaker is not None, reason) == (True, "")


def damaged(folder, to, change):
    """A copy of a checkpoint with other tensors."""
    shutil.copytree(folder, to)
    save_file(change(load_file(to / "model.safetensors")), to / "model.safetensors")
    return to


O = "model.layers.0.self_attn.o_proj.weight"  # noqa: E741
HOSTILE = {
    "no state": (lambda t: {k: v for k, v in t.items() if not k.startswith(f"{O}.quant_state")}, "o_proj"),
    "no scales": (lambda t: {k: v for k, v in t.items() if k != f"{O}.absmax"}, "absmax is not in the checkpoint"),
    "no weight": (lambda t: {k: v for k, v in t.items() if k != O}, "is not in the checkpoint"),
    "cut": (lambda t: t | {O: t[O][:-4].contiguous()}, "packed must be"),
    "another shape": (
        lambda t: t | {f"{O}.quant_state.bitsandbytes__nf4": state(t, shape=[32, 128])},
        r"has the shape \[32, 128\]; config.json says \[64, 64\]",
    ),
    "FP4": (lambda t: t | {f"{O}.quant_state.bitsandbytes__nf4": state(t, quant_type="fp4")}, "quant_type 'fp4'"),
    "no embedding": (
        lambda t: {k: v for k, v in t.items() if k != "model.embed_tokens.weight"}, "lack the tensor model.embed_tok",
    ),
    "another norm": (
        lambda t: t | {"model.norm.weight": torch.ones(65)}, r"model.norm.weight .* has the shape \[65\]",
    ),
    "a norm of integers": (lambda t: t | {"model.norm.weight": torch.ones(64, dtype=torch.int8)}, "stored as I8"),
}  # fmt: skip


def state(tensors, **changes):
    found = json.loads(bytes(tensors[f"{O}.quant_state.bitsandbytes__nf4"].tolist())) | changes
    return torch.tensor(list(json.dumps(found).encode()), dtype=torch.uint8)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_4_bit_checkpoint_is_refused(bases, tmp_path, name):
    change, message = HOSTILE[name]
    good = save_quantized(bases("llama"), tmp_path / "good")
    with pytest.raises(SetupError, match=message) as told:
        parity.fast(damaged(good, tmp_path / "bad", change), quantize=True)
    assert told.value.remedy


def test_4_bit_weights_that_config_json_does_not_mention_are_told(bases, tmp_path):
    folder = save_quantized(bases("llama"), tmp_path / "quantized")
    shutil.copy(bases("llama") / "config.json", folder / "config.json")
    with pytest.raises(SetupError, match=r"stored in 4 bits \(NF4\), but its config.json does not say so"):
        parity.fast(folder)


@pytest.mark.parametrize("quantize", [False, True])
def test_a_checkpoint_that_lacks_a_tensor_is_refused_before_anything_is_made(bases, tmp_path, quantize):
    folder = damaged(bases("llama"), tmp_path / "bad", lambda t: {k: v for k, v in t.items() if k != O})
    with pytest.raises(SetupError, match=f"lack the tensor {O}"):
        parity.fast(folder, quantize=quantize)


def test_a_family_that_it_does_not_know_is_the_callers_mistake(bases):
    source = parity.model_source(bases("llama"))
    object.__setattr__(source, "spec", None)
    with pytest.raises(ValueError, match="does not do llama"):
        load_decoder(source, DecoderOptions(torch.float32, parity.CPU, 64))


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3", "gemma3"])
@pytest.mark.parametrize("quantize", [False, True])
def test_compute_copies_stand_in_the_buffers_of_their_stacks(bases, adapters, name, quantize):
    """What the optimizer writes to the compute buffer is what the products read; nothing else is touched."""
    ours = parity.fast(bases(name), adapters(name), quantize=quantize)
    layout = FlatLayout(ours.loaded.segments, "cpu")
    compute_copies = layout.compute_copies(ours.loaded.compute_buffer)
    places = dict(
        zip(ours.model.adapter.named(), zip(compute_copies, ours.model.adapter.tensors, strict=True), strict=True)
    )
    for adapted in ours.loaded.plan.modules:
        stack = getattr(ours.loaded.decoder.layers[adapted.module.layer].weights, adapted.module.stack)
        buffer = stack.frozen.buffer()
        index = [one.first_row for one in stack.stack.adapters].index(adapted.module.first_row)
        first, adapter = stack.stack.firsts[index], stack.stack.adapters[index]
        (a_shadow, a), (b_shadow, b) = (places[key] for key in adapted.shapes)
        assert torch.equal(a_shadow, a)
        assert torch.equal(b_shadow, b * adapted.scale)
        assert torch.equal(buffer[stack.outputs + first :, : stack.inputs][: adapted.rank], a)
        column = stack.inputs + first
        assert torch.equal(buffer[adapter.span, column : column + adapted.rank], b * adapted.scale)
        assert not buffer[adapter.span, column + adapted.rank : column + adapter.padded].any()
        if not quantize:  # else other stacks leave something there, which nothing reads
            assert not buffer[stack.outputs :, stack.inputs :].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_everything_is_in_the_type_that_was_asked_for(bases, adapters, dtype):
    decoder = parity.fast(bases("qwen2"), adapters("qwen2"), dtype=dtype).loaded.decoder
    assert decoder.dtype == dtype
    assert decoder.head.matrix_VH is decoder.embedding_VH
    for layer in decoder.layers:
        assert layer.weights.mixer_in.bias_N.dtype == dtype
        assert layer.weights.mixer_out.bias_N is None
        assert {stack.frozen.buffer().dtype for stack in layer.stacks} == {dtype}
        assert layer.mixer.table_PR.dtype == torch.float32


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_made_up_weights_are_a_checkpoint_too(name, bases):
    spec = parity.model_source(bases(name)).spec
    plan = plan_adapter(AdapterSection(rank=4, targets=["all-linear"]), family(spec.family).modules(spec))
    for quantize in (False, True):
        weights = RandomWeights(spec, parity.CPU)
        loaded = build_decoder(weights, spec, DecoderOptions(torch.float32, parity.CPU, 64, plan, quantize))
        assert len(loaded.segments) == 2 * len(plan.modules)
        assert torch.isfinite(parity.Fast(loaded).logits(parity.micro_batch((20, 9)))).all()


@pytest.mark.gpu
@pytest.mark.parametrize("quantize", [False, True])
def test_streaming_leaves_no_second_copy_on_the_gpu(tmp_path, quantize):
    base = tiny_models.make(
        "llama", tmp_path / "base", dtype=torch.bfloat16, hidden_size=1024, intermediate_size=4096,
        num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8, vocab_size=32000,
    )  # fmt: skip
    size = (base / "model.safetensors").stat().st_size
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    options = DecoderOptions(torch.bfloat16, torch.device("cuda"), 4096, quantize=quantize)
    loaded = load_decoder(parity.model_source(base), options)
    torch.cuda.synchronize()
    held, peak = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
    assert loaded.decoder.device.type == "cuda"
    pieces = 2 * 32 * 2**20
    if quantize:
        embeddings = 2 * 32000 * 1024 * 2
        scratch = 2 * (4 * 1024 + 4096 * 3) * 1024
        assert held < embeddings + (size - embeddings) * 0.30 + scratch
        assert peak < held + pieces + 10 * 4 * 4096 * 1024
    else:
        assert held < size * 1.01 + 4 * 2**20
        assert peak < held + pieces + 4 * 2**20
