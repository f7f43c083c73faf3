"""Each model gets the fastest layout in which its documents are apart; models that leak across rows are found out."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.run.events import Warned
from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path import packed_attention, plain
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run
from burnish_engine.train.base.leaks import TOLERANCE, find_leak, full_pass, unlabeled_pass
from burnish_engine.train.parallel.sharded_model import shard
from burnish_engine.train.plain.layout_choice import choose_layout
from burnish_engine.train.plain.plain_step import model_inputs, passes_of, summed_loss
from burnish_engine.train.run import run_training

from support.models.tiny import make_tokenizer
from support.runs.tiny_runs import of_kind, tiny_recipe

CPU = torch.device("cpu")


def loaded(folder):
    return plain.load_base(open_model(str(folder)), "fp32", CPU)


def chosen(model, before=None, *, pack=True):
    return choose_layout(model, model.config.vocab_size, CPU, pack, before)


def test_llama_is_packed_and_an_order_not_to_is_honored(tiny_llama):
    model = loaded(tiny_llama)
    assert chosen(model) == ("packed", "")
    assert chosen(model, pack=False) == ("padded", "")


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Our attention is tried here too."""
    real = packed_attention.can_attend
    monkeypatch.setattr(packed_attention, "device_problem", lambda _device: "")
    monkeypatch.setattr(packed_attention, "can_attend", lambda model, _: real(model, torch.device("cuda")))


def test_where_our_attention_is_worth_it_documents_are_known(tiny_llama, as_on_a_gpu):
    model = loaded(tiny_llama)
    stood = torch.get_rng_state()
    assert chosen(model) == ("documents", "")
    assert torch.equal(torch.get_rng_state(), stood)
    assert not model.training
    assert chosen(loaded(tiny_llama), pack=False) == ("padded", "")


@pytest.fixture
def one_rank(tmp_path):
    """A group of this process alone, which FSDP2 gathers and adds up over."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_our_attention_is_tried_in_a_model_that_is_shared_out_too(tiny_llama, as_on_a_gpu, one_rank, dtype):
    """Its embedding is whole only within the model's own pass, and FSDP converts what layers are given."""
    model = loaded(tiny_llama)
    shard(model, dtype, CPU)
    assert chosen(model) == ("documents", "")


def test_a_run_keeps_its_layout_where_it_can(tiny_llama, as_on_a_gpu, monkeypatch):
    assert chosen(loaded(tiny_llama), "packed") == ("packed", "")
    assert chosen(loaded(tiny_llama), "padded") == ("padded", "")
    assert chosen(loaded(tiny_llama), "documents") == ("documents", "")
    monkeypatch.setattr(packed_attention, "can_attend", lambda *_: False)
    layout, note = chosen(loaded(tiny_llama), "documents")
    assert layout == "packed"
    assert "continues with transformers' own" in note


FAILURES = {
    "refuses": packed_attention.CannotAttendError("no"),
    "lacks Triton": ModuleNotFoundError("No module named 'triton'"),
    "lacks a compiler": RuntimeError("Failed to find C compiler"),
    "is off": None,
}


@pytest.mark.full
@pytest.mark.parametrize("what", FAILURES)
def test_an_attention_that_ours_is_not_stays_the_model_s_own(tiny_llama, as_on_a_gpu, monkeypatch, what):
    def attention(queries, *_arguments, **_options):
        if FAILURES[what]:
            raise FAILURES[what]
        return queries

    monkeypatch.setattr(packed_attention, "attention", attention)
    model = loaded(tiny_llama)
    layout, note = chosen(model)
    assert layout == "packed"
    assert (str(FAILURES[what]) if FAILURES[what] else "not kept apart") in note
    assert model.config._attn_implementation == "sdpa"
    assert not model.training


def test_a_backward_pass_that_fails_is_found_before_training(tiny_llama, as_on_a_gpu, monkeypatch):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, queries):
            return queries.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("out of registers")

    real = packed_attention.attention
    monkeypatch.setattr(packed_attention, "attention", lambda *given, **options: Broken.apply(real(*given, **options)))
    layout, note = chosen(loaded(tiny_llama))
    assert layout == "packed"
    assert "out of registers" in note


def test_no_memory_for_the_probe_is_no_reason_to_go_on(tiny_llama, as_on_a_gpu, monkeypatch):
    def attention(*_arguments, **_options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(packed_attention, "attention", attention)
    with pytest.raises(torch.OutOfMemoryError):
        chosen(loaded(tiny_llama))


def test_a_model_that_attends_in_a_way_of_its_own_is_found_out(tiny_llama, as_on_a_gpu, monkeypatch):
    """It would give the right numbers, under transformers' masks."""
    monkeypatch.setattr(packed_attention, "switch_over", lambda _model: None)
    layout, note = chosen(loaded(tiny_llama))
    assert layout == "packed"
    assert "a way of its own" in note


@pytest.mark.full
def test_dropout_within_attention_is_found_before_training(tiny_llama, as_on_a_gpu):
    model = loaded(tiny_llama)
    model.model.layers[1].self_attn.attention_dropout = 0.1
    assert chosen(model)[0] == "packed"
    assert not model.training


class Leaky(torch.nn.Module):
    """A causal model that ignores positions: every token sees all before it, whatever row they belong to."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.head = torch.nn.Linear(16, 50)

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids, position_ids=None, **_):
        return SimpleNamespace(logits=self.head(self.embed(input_ids).cumsum(1)))


def test_a_model_that_leaks_across_rows_is_padded_and_the_reason_told():
    torch.manual_seed(0)
    layout, note = choose_layout(Leaky(), 50, CPU, True)
    assert layout == "padded"
    assert "reach" in note


def test_a_leak_far_below_the_logits_rounding_is_found():
    """As of small weights at the start of training, which grow."""
    torch.manual_seed(0)
    model = Leaky()
    whole = model.forward

    def forward(input_ids, position_ids=None, **_):
        alone = model.head(model.embed(input_ids))
        return SimpleNamespace(logits=alone + 1e-7 * whole(input_ids).logits)

    model.forward = forward
    assert choose_layout(model, 50, CPU, True)[0] == "padded"


def test_a_model_that_refuses_packed_rows_is_padded():
    class Refuses(Leaky):
        def forward(self, input_ids, position_ids=None, **_):
            if position_ids is not None:
                raise TypeError("no positions")
            return SimpleNamespace(logits=self.head(self.embed(input_ids)))

    layout, note = choose_layout(Refuses(), 50, CPU, True)
    assert layout == "padded"
    assert "no positions" in note


@pytest.mark.parametrize("pack", [True, False])
def test_a_model_that_cannot_compute_a_single_row_is_told_before_training(pack):
    class Broken(Leaky):
        def forward(self, **_):
            raise RuntimeError("The size of tensor a (4) must match the size of tensor b (8)")

    with pytest.raises(SetupError, match=r"tensor a \(4\) must match"):
        choose_layout(Broken(), 50, CPU, pack)


def lfm2(vocab_size=97):
    """Of default initialization, whose convolutions leak by less than a number in bf16 shows."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["conv", "conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return Lfm2ForCausalLM(config)


def gpt_oss(**changes):
    """Layers with and without a window, attention sinks, experts, and masks that are made without positions."""
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(
        **{
            "vocab_size": 97, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4,
            "num_experts_per_tok": 2, "sliding_window": 6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            **changes,
        }
    )  # fmt: skip
    torch.manual_seed(0)
    return GptOssForCausalLM(config)


def rows(lengths, vocabulary=97):
    return [np.random.default_rng(seed).integers(3, vocabulary, length) for seed, length in enumerate(lengths)]


def labeled(documents):
    batch = unlabeled_pass(documents)
    batch.labels[:] = np.roll(batch.input_ids, -1)
    batch.labels[batch.boundaries[1:] - 1] = IGNORED
    return batch


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_short_convolutions_are_padded_whatever_the_precision(dtype):
    model = lfm2().to(dtype)
    layout, note = choose_layout(model, 97, CPU, True, None, rows([40, 48, 31]))
    assert layout == "padded"
    assert note


@pytest.mark.full
def test_what_is_chosen_is_what_the_guard_finds_right():
    """The layout's choice goes by the guard's own rows and tolerance."""
    for made, precision in ((lfm2(), "fp32"), (gpt_oss(), "fp32"), (lfm2().bfloat16(), "bf16")):
        model, documents = made.eval(), rows([40, 48, 31])
        layout, _ = choose_layout(model, 97, CPU, True, None, documents)

        def logits(batch, places, model=model, layout=layout):
            with torch.no_grad():
                found = model(**model_inputs(model, batch, CPU, layout)[0], use_cache=False).logits
            if layout != "padded":
                return found[0][places].float()
            row = np.searchsorted(batch.boundaries, places.numpy(), side="right") - 1
            return found[row, places.numpy() - batch.boundaries[row]].float()

        assert not find_leak(logits, documents, TOLERANCE[precision])


def test_gpt_oss_is_packed_under_masks_and_equals_padded_rows():
    model = gpt_oss()
    layout, note = choose_layout(model, 97, CPU, True)
    assert layout == "masked"
    assert "mask" in note
    assert model.config.sliding_window == 6
    batch, found = labeled(rows([5, 30, 1, 14])), {}
    for way in ("masked", "padded"):
        model.zero_grad()
        loss = summed_loss(model, batch, CPU, way)
        loss.backward()
        found[way] = [loss.detach(), *(value.grad for value in model.parameters() if value.grad is not None)]
    for masked, padded in zip(found["masked"], found["padded"], strict=True):
        torch.testing.assert_close(masked, padded, rtol=1e-4, atol=1e-5)


def test_masks_without_the_window_are_found_although_windows_are_longer_than_the_probe(monkeypatch):
    from burnish_engine.train.plain import layout_choice

    real = layout_choice.document_masks

    def one_for_all(model, positions):
        masks = real(model, positions)
        return dict.fromkeys(masks, masks["full_attention"])

    monkeypatch.setattr(layout_choice, "document_masks", one_for_all)
    assert choose_layout(gpt_oss(sliding_window=128), 97, CPU, True)[0] == "padded"


SIZES = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BY_LENGTH = {
    "plain rope": ("llama", {}, "packed"),
    "dynamic rope": (
        "llama",
        {"max_position_embeddings": 32, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
        "alone",
    ),
    "ALiBi in 16 bits": ("falcon", {"alibi": True, "new_decoder_architecture": False}, "padded"),
}


@pytest.mark.parametrize("name", BY_LENGTH)
def test_rows_whose_logits_go_by_their_pass_get_rows_or_passes_of_their_own(name):
    """What is chosen equals one row after another, in loss and gradients, with rows as long as the run's."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family, changes, expected = BY_LENGTH[name]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **changes)).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(4.0)  # attention that tells places apart, as after training
    fresh = copy.deepcopy(model)  # transformers' dynamic rope keeps the longest row that it saw
    made = rows([600, 12, 280, 24, 600])
    documents = [Document(ids, np.ones(len(ids), bool), row, "") for row, ids in enumerate(made)]
    full = full_pass(documents, 1600)
    assert [len(one) for one in full] == [600, 600, 280]
    layout, note = choose_layout(model, 97, CPU, True, None, made[:1], full)
    assert (layout, bool(note)) == (expected, expected != "packed")
    assert choose_layout(model, 97, CPU, True, layout)[0] == layout

    def step(model, documents, way):
        for part in passes_of(labeled(documents), way, 1600):
            summed_loss(model, part, CPU, way).backward()
        return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])

    together = step(model, made, layout)
    by_row = sum(step(copy.deepcopy(fresh), [one], "packed") for one in made)
    assert torch.dist(together, by_row) < 1e-4 * by_row.norm()


def test_a_full_pass_is_laid_out_of_rows_that_can_share_it():
    def lengths(rows, budget):
        documents = [Document(np.zeros(length, int), np.ones(length, bool), 0, "") for length in rows]
        return [len(one) for one in full_pass(documents, budget)]

    assert lengths([50, 20, 9], 64) == [50, 9]  # 20 has no room beside the longest
    assert lengths([60, 20, 9], 64) == [20, 20, 9]  # the longest has a pass of its own
    assert lengths([30] * 9, 200) == [30] * 6
    assert lengths([30, 30], 100_000) == [30, 30], "no longer than all rows of the run"
    assert lengths([60, 60], 64) == lengths([5], 64) == lengths([], 64) == []


def test_a_resumed_run_keeps_its_masks():
    assert choose_layout(gpt_oss(), 97, CPU, True, "masked") == ("masked", "")


def test_a_run_whose_convolutions_leak_trains_on_padded_rows_and_says_so(tmp_path):
    make_tokenizer(tmp_path / "base")
    lfm2(vocab_size=600).save_pretrained(tmp_path / "base")
    recipe = tiny_recipe(
        tmp_path, rows=12, max_steps=1, precision='"bf16"', engine='"plain"',
        extra='[guard]\naction = "stop"\nprobes = true',
    )  # fmt: skip
    targets = recipe.adapter.model_copy(
        update={"targets": ["q_proj", "v_proj", "in_proj", "out_proj", "w1", "w2", "w3"]}
    )
    paths = create_run(recipe.model_copy(update={"adapter": targets}), tmp_path / "run")
    assert run_training(paths).exit_code == 0
    card = read_card(paths)
    assert card.circumstances.layout == "padded"
    assert card.guard.verdict == "training"
    assert "leak" in card.guard.passed
    assert [event for event in of_kind(paths, Warned) if "padded" in event.message]
