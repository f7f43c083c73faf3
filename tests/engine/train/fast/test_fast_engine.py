"""The fast engine as a session uses it: training, evaluating, speaking, in 16 and 32 bits."""

import pytest
import torch

from burnish_engine.data.prepare import prepare
from burnish_engine.models.generation.generate import generate_replies
from burnish_engine.models.transformers_path import plain
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.plain.plain_engine import PlainEngine

from support.models.tiny import conversations, write_jsonl
from support.runs.tiny_runs import tiny_recipe

CPU = torch.device("cpu")


@pytest.mark.full
def test_it_trains_what_the_plain_engine_trains(make):
    """Losses, gradient norms, counts and held-out losses of both, without dropout, with gradients clipped."""
    exact, clip = {"dropout": 0.0}, {"max_grad_norm": 0.05}
    fast, slow = (
        make(sections={"adapter": exact, "train": {"engine": engine, **clip}}) for engine in ("fast", "plain")
    )
    assert isinstance(fast.engine, FastEngine)
    assert isinstance(slow.engine, PlainEngine)
    held = fast.data.validation
    request = EvaluationRequest(held, 256)
    assert fast.engine.held_out_loss(request) == pytest.approx(slow.engine.held_out_loss(request), rel=1e-5)
    for one, other in zip(fast.steps(6), slow.steps(6), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)
        for name in ("step", "micro_batches", "tokens", "supervised", "learning_rate", "taken", "loss_scale"):
            assert getattr(one, name) == getattr(other, name), name
    request = EvaluationRequest(held, 256)
    assert fast.engine.held_out_loss(request) == pytest.approx(slow.engine.held_out_loss(request), rel=1e-5)


@pytest.mark.full
def test_replies_are_those_of_transformers(make, tmp_path):
    fast = make()
    fast.steps(4)
    fast.engine.save_adapter(tmp_path / "adapter")
    prompts = [fast.tokenizer(text)["input_ids"] for text in ("My lamp is", "The bike number 3 is broken again", "x")]
    replies = fast.engine.replies(prompts, 12)
    model = plain.load_adapter(plain.load_base(fast.source, "fp32", CPU), tmp_path / "adapter")
    assert replies == generate_replies(model, fast.tokenizer, prompts, 12)


@pytest.mark.full
def test_speaking_and_evaluating_change_nothing(make):
    quiet, busy = make(), make()
    expected = quiet.steps(5)
    found = []
    for _ in range(5):
        found += busy.steps(1)
        busy.engine.held_out_loss(EvaluationRequest(busy.data.validation, 256))
        busy.engine.replies([[5, 6, 7]], 4)
    assert [(one.loss, one.grad_norm) for one in found] == [(one.loss, one.grad_norm) for one in expected]


@pytest.mark.full
def test_an_engine_put_back_computes_with_what_was_put_back(make):
    """In 16 bits, where the weights to compute with are copies."""
    engine = (made := make(precision="bf16")).engine
    before = engine.held_out_loss(EvaluationRequest(made.data.validation, 256))
    put_back = engine.snapshot()
    made.steps(3)
    assert engine.held_out_loss(EvaluationRequest(made.data.validation, 256)) != before
    put_back()
    assert engine.held_out_loss(EvaluationRequest(made.data.validation, 256)) == before


@pytest.mark.full
def test_held_out_rows_may_be_longer_than_all_of_training(make, tmp_path):
    """One short training row makes small passes; the held-out rows still fit."""
    fast = make({"rows": 1, "epochs": 50.0, "max_steps": 2})
    long = conversations(3, offset=3)
    for row in long:
        row["messages"][1]["content"] *= 3
    write_jsonl(tmp_path / "held.jsonl", long)
    data = prepare(fast.recipe, fast.tokenizer)
    longest = max(len(document) for document in data.validation)
    assert longest > max(layout.capacity for layout in fast.engine.layouts)
    slow = make({"rows": 1, "epochs": 50.0, "max_steps": 2}, {"train": {"engine": "plain"}})
    wanted = slow.engine.held_out_loss(EvaluationRequest(data.validation, 256))
    assert fast.engine.held_out_loss(EvaluationRequest(data.validation, 256)) == pytest.approx(wanted, rel=1e-5)


def test_a_failed_capture_is_one_note(make):
    fast = make()
    fast.steps(1)
    problem = fast.engine._trainer.problem = "CUDA graphs could not be captured (why); training continues without them."
    told = []
    for _ in range(3):
        fast.steps(1)
        told += [fast.engine.notes.pop(0) for _ in range(len(fast.engine.notes))]
    assert told == [problem]


@pytest.mark.full
def test_fp32_is_fp32_whatever_was_switched_on(make):
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = matmul.allow_bf16_reduced_precision_reduction = True
    make()
    assert not matmul.allow_tf32
    assert not matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_tf32 = True
    make(sections={"train": {"engine": "plain"}})
    assert not matmul.allow_tf32


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_follow_fp32(make, precision):
    exact, rounded = make(), make(precision=precision)
    ours, theirs = ([one.loss for one in each.steps(8)] for each in (rounded, exact))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert ours[-1] < ours[0]


@pytest.mark.gpu
@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_two_runs_on_a_gpu_have_the_same_bits(make, tmp_path, quantize, monkeypatch):
    """Through the engine, with dropout, accumulation, evaluation, replies and graphs."""
    captured = []
    real = MicroBatchStep.capture

    def capture(self, *rest, **kind):
        real(self, *rest, **kind)
        captured.append(self.layout.capacity)

    monkeypatch.setattr(MicroBatchStep, "capture", capture)
    path, found = tiny_recipe(tmp_path).model.path, []
    for _ in range(2):
        settings, sections = {"accumulation": 2, "epochs": 8.0}, {"model": {"path": path, "quantize": quantize}}
        one = make(settings, sections, precision="bf16", device=torch.device("cuda"))
        steps = one.steps(4)
        held = one.engine.held_out_loss(EvaluationRequest(one.data.validation, 256))
        replies = one.engine.replies([[5, 6, 7], [8, 9]], 6)
        steps += one.steps(4)
        found.append(([(step.loss, step.grad_norm) for step in steps], held, replies))
        assert one.engine.notes == []
    assert captured
    assert found[0] == found[1]
