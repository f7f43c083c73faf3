"""Packed and padded rows give the same loss and gradients, and models that leak across rows are found out."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe_train import AdapterSection
from burnish_engine.data.pack import IGNORED, MicroBatch
from burnish_engine.models import packed_attention, plain
from burnish_engine.models.source import open_model
from burnish_engine.train.plain_step import apart, choose_layout, summed_loss

from support.tiny import make_tokenizer

CPU = torch.device("cpu")


def micro_batch(lengths, vocab, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, sum(lengths))
    boundaries = np.cumsum([0, *lengths]).astype(np.int32)
    labels = np.roll(ids, -1)
    labels[rng.random(len(ids)) < 0.3] = IGNORED
    labels[boundaries[1:] - 1] = IGNORED
    positions = np.concatenate([np.arange(n) for n in lengths])
    return MicroBatch(
        input_ids=ids.astype(np.int64),
        positions=positions.astype(np.int64),
        labels=labels.astype(np.int64),
        boundaries=boundaries,
        rows=tuple(range(len(lengths))),
    )


@pytest.fixture
def tuned(tiny_llama):
    model = plain.attach_adapter(plain.load_base(open_model(str(tiny_llama)), "fp32", CPU), AdapterSection(rank=4), 0)
    with torch.no_grad():
        for name, value in plain.trainable_parameters(model):
            if "lora_B" in name:
                value.normal_(std=0.1)
    return model.train()


@pytest.mark.parametrize("lengths", [[1], [20], [7, 13], [1, 1, 30, 2], [5] * 9])
def test_packed_equals_padded(tuned, lengths):
    batch = micro_batch(lengths, tuned.config.vocab_size)
    results = {}
    for layout in ("packed", "padded", "documents"):
        tuned.zero_grad()
        if layout == "documents":
            packed_attention.switch_over(tuned.get_base_model())
        with apart(batch, layout) as seen:
            loss = summed_loss(tuned, batch, CPU, layout)
            if (batch.labels != IGNORED).any():
                loss.backward()
        assert (seen.calls if seen else 0) == (tuned.config.num_hidden_layers if layout == "documents" else 0)
        results[layout] = [loss.detach()] + [
            value.grad.clone() for _, value in plain.trainable_parameters(tuned) if value.grad is not None
        ]
    for layout in ("packed", "documents"):
        for ours, theirs in zip(results[layout], results["padded"], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


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


def test_a_run_keeps_its_layout_where_it_can(tiny_llama, as_on_a_gpu, monkeypatch):
    assert chosen(loaded(tiny_llama), "packed") == ("packed", "")
    assert chosen(loaded(tiny_llama), "padded") == ("padded", "")
    assert chosen(loaded(tiny_llama), "documents") == ("documents", "")
    monkeypatch.setattr(packed_attention, "can_attend", lambda *_: False)
    layout, note = chosen(loaded(tiny_llama), "documents")
    assert layout == "packed"
    assert "goes on with transformers' own" in note


FAILURES = {
    "refuses": packed_attention.CannotAttendError("no"),
    "lacks Triton": ModuleNotFoundError("No module named 'triton'"),
    "lacks a compiler": RuntimeError("Failed to find C compiler"),
    "is off": None,
}


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

    def forward(self, input_ids, position_ids=None, **_):
        from types import SimpleNamespace

        return SimpleNamespace(logits=self.head(self.embed(input_ids).cumsum(1)))


def test_a_model_that_leaks_across_rows_is_padded():
    torch.manual_seed(0)
    assert choose_layout(Leaky(), 50, CPU, pack=True)[0] == "padded"


def test_lfm2_trains_whatever_its_convolutions_do(tmp_path):
    """The probe decides how rows are laid out, and the loss is that of single rows."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    tokenizer = make_tokenizer(tmp_path)
    torch.manual_seed(0)
    config = Lfm2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["conv", "conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    Lfm2ForCausalLM(config).save_pretrained(tmp_path)
    model = plain.load_base(open_model(str(tmp_path)), "fp32", CPU)
    layout, _ = choose_layout(model, len(tokenizer), CPU, pack=True)
    batch = micro_batch([9, 14, 4], len(tokenizer))
    loss = summed_loss(model, batch, CPU, layout)
    alone = 0.0
    for start, end in zip(batch.boundaries[:-1], batch.boundaries[1:], strict=True):
        logits = model(input_ids=torch.from_numpy(batch.input_ids[start:end])[None]).logits[0].float()
        labels = torch.from_numpy(batch.labels[start:end])
        alone = alone + torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    torch.testing.assert_close(loss, alone, rtol=1e-4, atol=1e-4)
