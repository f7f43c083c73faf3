"""The plain engine's memory against what autograd really keeps, counted with saved-tensor hooks on built models."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from burnish_engine.advise.facts.trained_bytes import optimizer_bytes, tensor_sizes, trained_parameters
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.plain.memory import (
    head_bytes,
    layer_kept_bytes,
    pair_bytes,
    plain_memory,
    uses_own_attention,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.models.transformers_path.packed_masks import document_masks
from burnish_engine.models.transformers_path.plain import attach_adapter
from burnish_engine.train.optimizers.optimizer import make_optimizer
from burnish_engine.train.optimizers.optimizer_state import optimizer_tensors
from burnish_engine.train.plain.plain_step import summed_loss
from burnish_engine.train.plain.whole_model import WholeModel

from support.machines.made_up import gpu_machine
from support.memory.live_bytes import LiveBytes
from support.models.tiny import make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = 160
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1200,
    "tie_word_embeddings": True,
}
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {"head_dim": 96}, "apertus": {}}


def kept_bytes(family, layers, dtype, section, *, apart=False):
    """Bytes of distinct storages that autograd holds after the forward pass, parameters left out."""
    config = AutoConfig.for_model(family, **SHAPE, **FAMILIES[family], num_hidden_layers=layers)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    whole = section.method == "full"
    tuned = model.train() if whole else attach_adapter(model.requires_grad_(False), section, seed=0).train()
    parameters = {value.data_ptr() for value in tuned.parameters()}
    storages = {}

    def pack(tensor):
        if tensor.data_ptr() not in parameters:
            storages[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    ids = torch.randint(0, 1200, (1, TOKENS))
    positions = torch.from_numpy(np.concatenate([np.arange(90), np.arange(TOKENS - 90)]))[None]
    if apart:
        packed_attention.switch_over(model)
    ends = np.array([0, 90, TOKENS]) if apart else None
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), packed_attention.within(ends):
        logits = tuned(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
        loss = functional.cross_entropy(logits.float(), ids[0])
    assert loss.requires_grad
    return sum(size for size, _ in storages.values()), decoder_spec(config.to_dict())


SECTIONS = {
    "all": AdapterSection(rank=8),
    "query-value": AdapterSection(rank=8, targets=["q_proj", "v_proj"]),
    "full": AdapterSection(method="full"),
}


def kept_cases():
    """Every pair of family, section, precision and way of attention; what else there is of their product is `long`."""
    ways = ("mask", "apart"), ("apart", "mask"), ("apart", "mask")
    chosen = {
        (family, section, ("bf16", "fp32")[(row + column) % 2], ways[column][row % 2])
        for row, family in enumerate(FAMILIES)
        for column, section in enumerate(SECTIONS)
    }
    for case in itertools.product(FAMILIES, SECTIONS, ("bf16", "fp32"), ("mask", "apart")):
        yield pytest.param(*case, marks=() if case in chosen else pytest.mark.long)


@pytest.mark.full
@pytest.mark.parametrize(("family", "section", "precision", "attention"), kept_cases())
def test_kept_activations_of_a_layer(family, section, precision, attention):
    section, apart = SECTIONS[section], attention == "apart"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    two, _ = kept_bytes(family, 2, dtype, section, apart=apart)
    three, spec = kept_bytes(family, 3, dtype, section, apart=apart)
    recipe, width = Recipe(adapter=section), 2 if precision == "bf16" else 4
    predicted = layer_kept_bytes(recipe, spec, spec.layers[0], TOKENS, width, own_attention=apart)
    assert predicted == pytest.approx(three - two, rel=0.005)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_without_a_fused_kernel_keeps_every_pair_of_tokens(dtype):
    """Of gpt_oss, whose packed passes have masks of ours."""
    config = AutoConfig.for_model(
        "gpt_oss", vocab_size=120, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, pad_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    parameters = {value.data_ptr() for value in model.parameters()}

    def kept(tokens):
        storages = {}
        positions = torch.cat([torch.arange(tokens // 2)] * 2)[None]
        masks = document_masks(model, positions)

        def pack(tensor):
            if tensor.data_ptr() not in parameters:
                storages[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            ids = torch.zeros(1, tokens, dtype=torch.long)
            _found = model(input_ids=ids, position_ids=positions, attention_mask=masks, use_cache=False).logits
        return sum(size for size, _ in storages.values())

    square = kept(256) - 2 * kept(128)  # without what grows with the tokens
    predicted = pair_bytes(decoder_spec(config.to_dict()), dtype.itemsize) * len(config.layer_types)
    assert square / (2 * 128**2) == pytest.approx(predicted, rel=0.15)


FULL = AdapterSection(method="full")


def spec_of(family="llama"):
    config = AutoConfig.for_model(family, **SHAPE, **FAMILIES[family], num_hidden_layers=4)
    return decoder_spec(config.to_dict())


def parts(recipe, largest=None, **options):
    options = {"cuda": True, "precision": "bf16"} | options
    return {
        part.name: part.bytes
        for part in plain_memory(recipe, spec_of(), largest or MicroBatchSize(1024, 600), **options)
    }


def test_recompute_keeps_layer_inputs_and_one_layer():
    kept = parts(Recipe())
    recomputed = parts(Recipe(train=TrainSection(recompute=True)))
    assert recomputed["activations"] < kept["activations"] / 5
    assert recomputed["base weights"] == kept["base weights"]


def test_head_grows_with_learned_tokens_only():
    few, many = parts(Recipe(), MicroBatchSize(4096, 100)), parts(Recipe(), MicroBatchSize(4096, 4096))
    assert few["activations"] == many["activations"]
    assert many["head and loss"] == head_bytes(spec_of(), 4096) == 4096 * 1200 * 12


def test_adapter_optimizer_and_gradients_are_fp32():
    found = parts(Recipe(adapter=AdapterSection(rank=16)))
    assert found["optimizer"] == 2 * found["adapter"] == 2 * found["gradients"]


def test_caches_grow_with_the_passes_of_a_processor_up_to_a_limit():
    held = [
        parts(Recipe(), cuda=False, precision="fp32", passes=passes)["libraries"] for passes in (5, 50, 100, 1000, None)
    ]
    assert held[0] < held[1] < held[2] == held[3] == held[4]
    on_gpu = [parts(Recipe(), passes=passes) for passes in (5, None)]
    assert on_gpu[0] == on_gpu[1]


TIED = {"vocab_size": 1200, "tie_word_embeddings": True}
UNTIED = {"vocab_size": 6000, "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Model folders with tied and with own head."""
    made = {}
    for name, changes in (("tied", TIED), ("untied", UNTIED)):
        folder = tmp_path_factory.mktemp(name)
        make_tokenizer(folder)
        config = AutoConfig.for_model("llama", **SHAPE | changes, num_hidden_layers=6)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        made[name] = folder
    return made


def two_documents(tokens):
    """A pass of two rows whose every second token is learned."""
    ids = np.random.default_rng(0).integers(0, 1200, tokens)
    labels = np.roll(ids, -1)
    labels[::2] = IGNORED
    cut = tokens // 2
    positions = np.concatenate([np.arange(cut), np.arange(tokens - cut)])
    return MicroBatch(ids, positions, labels, np.array([0, cut, tokens], np.int32), (0, 1))


def peak_of_steps(folder, train, precision, tokens):
    """Most bytes of tensors alive in the second of two optimizer steps that change every weight."""
    cpu, batch = torch.device("cpu"), two_documents(tokens)
    with LiveBytes() as live:
        whole = WholeModel(open_model(str(folder)), precision, cpu)
        optimizer = make_optimizer(train, whole.parameters, whole=True)
        whole.model.train()
        if train.recompute:
            whole.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for value in (*whole.model.parameters(), *(value for _, value in whole.parameters)):
            live._see(value.untyped_storage())  # loaded by other threads, unseen
        for _ in range(2):
            live.peak = live.now
            for _ in range(train.accumulation):
                summed_loss(whole.model, batch, cpu, "packed").backward()
            torch.nn.utils.clip_grad_norm_([value for _, value in whole.parameters], 1.0)
            optimizer.step()
            whole.sync_copies()
            whole.drop_gradients()
    return live.peak, batch.supervised_tokens


@pytest.mark.full
@pytest.mark.parametrize(
    ("tokens", "settings", "most", "base", "precision"),
    [
        # In bf16 a processor is ten times slower, so there are fewer tokens.
        (tokens if precision == "fp32" else max(tokens // 4, 64), settings, most, base, precision)
        for turn, (tokens, settings, most) in enumerate(
            [(64, {}, 1.01), (1200, {}, 1.06), (600, {"accumulation": 2}, 1.05), (1200, {"recompute": True}, 1.13)]
        )
        for base, precision in [("tied", "fp32" if turn % 2 else "bf16"), ("untied", "bf16" if turn % 2 else "fp32")]
    ],
)
def test_training_every_weight_takes_what_its_tensors_take(bases, base, precision, tokens, settings, most):
    train = TrainSection(**settings)
    peak, supervised = peak_of_steps(bases[base], train, precision, tokens)
    spec, recipe = open_model(str(bases[base])).spec, Recipe(adapter=FULL, train=train)
    made = plain_memory(recipe, spec, MicroBatchSize(tokens, supervised), cuda=False, precision=precision)
    predicted = sum(part.bytes for part in made if part.name not in {"allocator", "libraries"})
    assert 0.99 < predicted / peak < most


def state_cases():
    """Every optimizer with all weights and with one rank, the one whose small tensors stay in fp32 with both."""
    for turn, optimizer in enumerate(["adamw", "adamw8bit", "muon", "lion", "adafactor", "schedule_free"]):
        usual = 48 if turn % 2 else 8
        for rank in (0, 8, 48):
            marks = () if rank in (0, usual) or optimizer == "adamw8bit" else pytest.mark.long
            yield pytest.param(rank, optimizer, id=f"{optimizer}-{rank or 'full'}", marks=marks)


@pytest.mark.full
@pytest.mark.parametrize(("rank", "optimizer"), state_cases())
def test_optimizer_state_byte_for_byte(bases, rank, optimizer):
    section = AdapterSection(rank=rank) if rank else FULL
    source, train = open_model(str(bases["tied"])), TrainSection(optimizer=optimizer)
    if section.method == "full":
        named = WholeModel(source, "fp32", torch.device("cpu")).parameters
    else:
        model = AutoModelForCausalLM.from_pretrained(source.folder).requires_grad_(False)
        named = [(n, v) for n, v in attach_adapter(model, section, seed=0).named_parameters() if v.requires_grad]
    made = make_optimizer(train, named, whole=True, tables={name for name, _ in named if "embed" in name})
    for _, value in named:
        value.grad = torch.zeros_like(value)
    made.step()
    state = optimizer_tensors(made, named)
    counts = ("dynamic", "udynamic", "group/")
    held = sum(
        value.nbytes for name, value in state.items() if not name.startswith(counts) and not name.endswith("/step")
    )
    predicted = optimizer_bytes(source.spec, section, optimizer, cuda=True)
    assert (predicted.device, predicted.host) == (held, 0)
    assert sum(tensor_sizes(source.spec, section)) == trained_parameters(source.spec, section)
    assert trained_parameters(source.spec, section) == sum(value.numel() for _, value in named)


def test_paged_state_lies_in_host_memory_but_for_what_is_at_work():
    spec = spec_of()
    plain, paged = (optimizer_bytes(spec, FULL, name, cuda=True) for name in ("adamw8bit", "paged_adamw8bit"))
    assert plain.total == paged.total
    assert paged.host > 0.7 * plain.total
    assert paged.largest == 2 * SHAPE["vocab_size"] * SHAPE["hidden_size"]
    assert optimizer_bytes(spec, FULL, "paged_adamw8bit", cuda=False) == plain
    found = {
        name: parts(Recipe(adapter=FULL, train=TrainSection(optimizer=name)))["optimizer"]
        for name in ("adamw", "adamw8bit", "paged_adamw8bit")
    }
    assert found["adamw"] > 3 * found["adamw8bit"] > 3 * found["paged_adamw8bit"]


def test_an_optimizer_of_unknown_size_is_not_guessed():
    with pytest.raises(ValueError, match="sgd"):
        optimizer_bytes(spec_of(), FULL, "sgd", cuda=True)


def test_masters_are_named_where_the_model_computes_in_bf16():
    recipe = Recipe(adapter=FULL)
    half, whole = parts(recipe), parts(recipe, precision="fp32")
    assert half["master weights"] == 2 * half["base weights"] == whole["base weights"]
    assert "master weights" not in whole
    assert "adapter" not in half


def test_masks_are_planned_for_where_our_attention_is_not_sure():
    card = gpu_machine("a card", 24 * 2**30).gpus[0]
    new, old = (card.model_copy(update={"compute_capability": version}) for version in ((9, 0), (7, 5)))
    llama = spec_of()
    assert uses_own_attention(Recipe(), llama, new)
    assert not uses_own_attention(Recipe(), llama, None)
    assert not uses_own_attention(Recipe(), llama, old)
    assert not uses_own_attention(Recipe(train=TrainSection(pack=False)), llama, new)
    others = {"family": "gpt_oss"}, {"attention_softcap": 50.0}, {"head_dim": 288}
    assert not any(uses_own_attention(Recipe(), llama.model_copy(update=one), new) for one in others)
    kept = [sum(parts(Recipe(), own_attention=apart).values()) for apart in (True, False)]
    assert kept[0] < kept[1]
