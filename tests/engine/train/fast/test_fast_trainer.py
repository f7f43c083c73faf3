"""Steps of the fast engine: order, accumulation, buckets, skipped steps, and on a GPU graphs without a wait."""

import time
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.train.fast import fast_trainer
from burnish_engine.train.fast.fast_trainer import AHEAD, _Readback
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.prefetch import StepFacts, StepScalars

from support.models import parity, tiny_models
from support.runs.steps import PASSES, SECTION, prefetcher, train, trainer


@pytest.mark.full
def test_results_come_in_order_and_say_what_was_trained(adapted_llama):
    results, _ = train(trainer(*adapted_llama[:2]), PASSES * 3, 2, rate=lambda step: step / 1000)
    assert [result.step for result in results] == [1, 2, 3, 4, 5, 6]
    assert [result.tokens for result in results] == [111, 247] * 3
    supervised = [sum(PASSES[i].supervised_tokens for i in pair) for pair in ((0, 1), (2, 3))]
    assert [result.supervised for result in results] == supervised * 3
    assert [result.learning_rate for result in results] == [step / 1000 for step in range(1, 7)]
    for result in results:
        assert result.taken
        assert result.micro_batches == 2
        assert result.loss_scale == 1.0
        assert result.grad_norm > 0
        assert result.seconds > 0
    assert results[-1].loss < results[1].loss


@pytest.mark.full
def test_a_step_is_adamw_on_pefts_gradient(adapted_llama):
    """Three steps against torch.optim.AdamW, with clipping and weight decay."""
    section = SECTION.model_copy(update={"max_grad_norm": 0.3})
    results, param = train(trainer(*adapted_llama[:2], section=section), PASSES[:3])
    tuned = parity.peft(*adapted_llama[:2])
    named = {key.replace(".default.", "."): value for key, value in tuned.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=5e-3, weight_decay=0.01)
    for result, batch in zip(results, PASSES[:3], strict=True):
        loss, _ = parity.peft_gradients(tuned, batch)
        norm = torch.nn.utils.clip_grad_norm_(named.values(), 0.3)
        optimizer.step()
        assert result.loss == pytest.approx(loss, rel=1e-5)
        assert result.grad_norm == pytest.approx(float(norm), rel=1e-4)
    trained = trainer(*adapted_llama[:2])
    ours = dict(zip(trained.model.adapter.named(), trained.model.optimizer.layout.views(param), strict=True))
    assert parity.worst(ours, {key: value.detach() for key, value in named.items()}) < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("keep", LEVEL_NAMES)
def test_several_passes_of_a_step_are_one_large_pass(adapted_llama, keep):
    whole = parity.micro_batch((30, 20, 61, 9, 40, 70), seed=5)
    parts = parity.single(whole)
    together, one = train(trainer(*adapted_llama[:2], keep=keep), [whole])
    apart, other = train(trainer(*adapted_llama[:2], keep=keep), parts, len(parts))
    assert apart[0].loss == pytest.approx(together[0].loss, rel=1e-5)
    assert apart[0].grad_norm == pytest.approx(together[0].grad_norm, rel=1e-4)
    assert apart[0].micro_batches == 6
    assert parity.distance(other, one) < 1e-4


@pytest.fixture(scope="module")
def six_layers(tmp_path_factory):
    """Folders of a tiny model of six layers, and of an adapter with dropout."""
    base = tiny_models.make("qwen3", tmp_path_factory.mktemp("six") / "base", num_hidden_layers=6)
    adapter = tiny_models.lora(base, base.with_name("adapter"), rank=5)
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', '"lora_dropout": 0.2'))
    return base, adapter


@pytest.mark.full
@pytest.mark.parametrize("quantize", [False, True])
def test_layers_in_host_memory_train_the_same_bits(six_layers, quantize):
    """In several buckets, and resumed with other layers there."""
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3)]
    results, param = train(trainer(*six_layers, quantize=quantize), order, 2)
    strip = [(result.loss, result.grad_norm) for result in results]
    for layers in (range(6), (1, 3, 5)):
        begun = trainer(*six_layers, quantize=quantize, layers_on_host=frozenset(layers))
        found, other = train(begun, order, 2)
        assert [(result.loss, result.grad_norm) for result in found] == strip
        assert torch.equal(other, param)
    begun = trainer(*six_layers, quantize=quantize, layers_on_host=frozenset({0, 1, 2, 4}), keep="input")
    train(begun, order[:2], 2)
    resumed = trainer(*six_layers, quantize=quantize, layers_on_host=frozenset({2, 3, 5}))
    resumed.model.optimizer.param.copy_(begun.model.optimizer.param)
    resumed.model.optimizer.write_compute_copies()
    resumed.model.restore(begun.model.state())
    rest, again = train(resumed, order, 2, first=2)
    assert [(result.loss, result.grad_norm) for result in rest] == strip[1:]
    assert torch.equal(again, param)


@pytest.mark.full
def test_buckets_share_their_buffers(adapted_llama):
    """Passes that fall into three sizes in any order train what one size for all does."""
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3, 1, 2)]
    several = trainer(*adapted_llama[:2])
    results, param = train(several, order, 2)
    assert {layout.capacity for layout in several.ran} == {64, 128}
    others, other = train(trainer(*adapted_llama[:2], rows=(256,)), order, 2)
    assert [result.loss for result in results] == pytest.approx([result.loss for result in others], rel=1e-5)
    assert parity.distance(param, other) < 1e-4


@pytest.mark.full
def test_passes_without_supervised_tokens_count_for_nothing(adapted_llama):
    silent = parity.micro_batch((20, 9), learned=0.0)
    results, param = train(trainer(*adapted_llama[:2]), [PASSES[0], silent, silent, PASSES[1]], 2)
    alone, other = train(trainer(*adapted_llama[:2]), PASSES[:2])
    assert [result.loss for result in results] == [result.loss for result in alone]
    assert torch.equal(param, other)
    assert results[0].tokens == 79


@pytest.mark.full
def test_a_step_without_any_changes_nothing_and_is_no_failure(adapted_llama):
    """Neither parameters nor moments move on old momentum, as in the plain engine."""
    silent = parity.micro_batch((20, 9), learned=0.0)
    with_pause, param = train(trainer(*adapted_llama[:2]), [PASSES[0], silent, PASSES[1]])
    without, other = train(trainer(*adapted_llama[:2]), PASSES[:2])
    assert torch.equal(param, other)
    pause = with_pause[1]
    assert (pause.loss, pause.grad_norm, pause.supervised, pause.taken) == (0.0, 0.0, 0, True)
    assert [result.loss for result in with_pause[::2]] == [result.loss for result in without]


@pytest.mark.full
def test_a_step_that_broke_off_after_its_first_pass_leaves_no_trace(adapted_llama, monkeypatch):
    made, run, passes = trainer(*adapted_llama[:2]), MicroBatchStep.run, count()

    def second_fails(self, counts, *rest):
        if next(passes) == 1:
            raise MemoryError("full")
        run(self, counts, *rest)

    monkeypatch.setattr(MicroBatchStep, "run", second_fails)
    with prefetcher(made, PASSES[:2], 2) as ring, pytest.raises(MemoryError):
        made.step(ring)
    made.reset()
    results, param = train(made, PASSES[:2], 2)
    wanted, other = train(trainer(*adapted_llama[:2]), PASSES[:2], 2)
    assert [result.loss for result in results] == [result.loss for result in wanted]
    assert torch.equal(param, other)


@pytest.mark.full
def test_every_pass_draws_its_own_dropout(adapted_llama):
    """Nothing is learned, so that passes over the same rows differ by their masks alone."""
    base, _, dropping = adapted_llama
    passes, still = [PASSES[0]] * 4, lambda _step: 0.0
    losses = [result.loss for result in train(trainer(base, dropping), passes, rate=still)[0]]
    assert len(set(losses)) == 4
    by_two = SECTION.model_copy(update={"accumulation": 2})
    pairs = [result.loss for result in train(trainer(base, dropping, section=by_two), passes, 2, rate=still)[0]]
    assert pairs == pytest.approx([(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2], rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("accumulation", [1, 2])
def test_dropout_depends_on_the_micro_batch_and_not_on_the_process(adapted_llama, accumulation):
    base, _, dropping = adapted_llama
    passes = [PASSES[0]] * 8
    whole = trainer(base, dropping)
    results, param = train(whole, passes, accumulation)
    assert len({result.loss for result in results}) == len(results)
    begun = trainer(base, dropping)
    train(begun, passes[:4], accumulation)
    resumed = trainer(base, dropping)
    resumed.model.optimizer.param.copy_(begun.model.optimizer.param)
    resumed.model.optimizer.write_compute_copies()
    resumed.model.restore(begun.model.state())
    rest, again = train(resumed, passes, accumulation, first=4)
    strip = [(result.step, result.loss, result.grad_norm) for result in results]
    assert [(result.step, result.loss, result.grad_norm) for result in rest] == strip[4 // accumulation :]
    assert torch.equal(again, param)
    seeded = SECTION.model_copy(update={"seed": 1})
    assert train(trainer(base, dropping, section=seeded), passes[:1])[0][0].loss != results[0].loss


@pytest.mark.full
def test_the_state_of_another_adapter_is_refused(adapted_llama, tmp_path):
    base, adapter, _ = adapted_llama
    state = trainer(base, adapter).model.state()
    other = tiny_models.lora(base, tmp_path / "other", targets=["up_proj"])
    few = trainer(base, other).model
    del state["base_model.model.model.layers.0.mlp.up_proj.lora_A.weight/exp_avg"]
    with pytest.raises(KeyError, match="up_proj"):
        few.restore(state)


# fp16


@pytest.mark.full
def test_fp16_trains_with_a_loss_scale(adapted_llama):
    trained = trainer(*adapted_llama[:2], dtype=torch.float16)
    results, _ = train(trained, [PASSES[0]] * 8)
    exact, _ = train(trainer(*adapted_llama[:2]), [PASSES[0]] * 8)
    assert {result.loss_scale for result in results} == {2.0**14}
    assert all(result.taken for result in results)
    assert [result.loss for result in results] == pytest.approx([result.loss for result in exact], rel=0.02)
    assert [result.grad_norm for result in results] == pytest.approx([result.grad_norm for result in exact], rel=0.05)


@pytest.mark.full
def test_an_overflow_is_skipped_and_halves_the_scale(adapted_llama):
    trained = trainer(*adapted_llama[:2], dtype=torch.float16)
    trained.model.optimizer.loss_scale.fill_(2.0**24)  # times 1 / supervised tokens: beyond 65,504
    before = trained.model.optimizer.param.clone()
    states = []
    with prefetcher(trained, [PASSES[0]] * 12) as ring:
        for _ in range(12):
            trained.step(ring)
            states.append(trained.model.optimizer.param.clone())
    results = list(trained.results(wait=True))
    skipped = [result for result in results if not result.taken]
    assert 1 <= len(skipped) < 11
    assert results[: len(skipped)] == skipped
    assert [result.loss_scale for result in results[:4]] == [2.0**24, 2.0**23, 2.0**22, 2.0**21]
    for state in states[: len(skipped)]:
        assert torch.equal(state, before)
    assert not torch.equal(states[len(skipped)], before)
    assert {result.loss_scale for result in results[len(skipped) :]} == {2.0 ** (24 - len(skipped))}
    assert results[-1].loss < results[0].loss


# Results that are still on their way


class Tape:
    """An event of a device that gets there after so many questions."""

    def __init__(self, questions):
        self.questions = questions

    def query(self):
        self.questions -= 1
        return self.questions < 0

    def elapsed_time(self, end):
        return 250.0


def facts(number):
    return StepFacts(number, 1, 10, 5, StepScalars(0.2, 1e-3))


def test_the_host_waits_where_the_device_is_too_far_behind(monkeypatch):
    readback = _Readback(parity.CPU, None, lambda: None)
    monkeypatch.setattr(fast_trainer, "_POLL_S", 0.0)
    tapes = [Tape(0), Tape(3), Tape(0), Tape(0)]
    marks = iter([Tape(0), *tapes])
    monkeypatch.setattr(readback, "_mark", lambda: next(marks))
    readback.begin()
    for number in range(1, AHEAD + 1):
        readback.push(facts(number), torch.tensor([number, 1.0, 1.0, 1.0]), torch.tensor([number / 2]))
        readback.begin()  # the step before is under way: it ends where this one begins
    readback.wait_until_fewer_than(AHEAD)
    assert len(readback._pending) == AHEAD - 1
    arrived = list(readback.collect(wait=False))
    assert [result.step for result in arrived] == [1]
    rest = list(readback.collect(wait=True))
    assert [(result.step, result.loss, result.grad_norm) for result in rest] == [(2, 1.0, 2.0), (3, 1.5, 3.0)]
    assert {result.seconds for result in arrived + rest} == {0.25}
    assert not readback._pending


@pytest.mark.full
def test_time_between_steps_counts_for_none(adapted_llama, monkeypatch):
    """By a clock that moves on by 1 s at each look at it, and by 1,000 s between the steps."""
    clock = count(1.0)
    pauses = [0.0]
    monkeypatch.setattr(
        fast_trainer, "time", SimpleNamespace(perf_counter=lambda: next(clock) + pauses[-1], sleep=time.sleep)
    )
    trained = trainer(*adapted_llama[:2])
    with prefetcher(trained, PASSES) as ring:
        trained.step(ring)
        pauses.append(1000.0)
        trained.step(ring)
        results = list(trained.results(wait=True))
    assert [0.0 < result.seconds < float("inf") for result in results] == [True, True]
