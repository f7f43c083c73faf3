"""The fast engine by other memory plans (pinned, on the host, changed on the way) trains the same."""

import pytest

from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.guard.checksums import changed as changed_sums
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.guard.probe_checks import choose_rows, pass_of

PINNED = {"layers": "narrow,host+attention:2", "mlp_rows": 40, "head_rows": 32}


@pytest.mark.full
def test_a_pinned_plan_is_carried_out(make):
    """Other pieces, the same training."""
    exact = {"adapter": {"dropout": 0.0}}  # pieces drop out differently
    usual, pinned = make(sections=exact), make(sections=exact | {"memory": PINNED})
    count = pinned.engine.model.loaded.decoder.spec.num_layers
    assert pinned.engine.plan.layers == ("narrow", "host", "attention", *["attention"] * count)[:count]
    assert (pinned.engine.plan.mlp_rows, pinned.engine.plan.head_rows) == (40, 32)
    assert {layer.feed_forward.mlp_chunk_tokens for layer in pinned.engine.model.loaded.decoder.layers} == {40}
    assert {layout.head_chunk_tokens for layout in pinned.engine.layouts} == {32}
    for one, other in zip(usual.steps(5), pinned.steps(5), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    assert pinned.engine.facts.locked_bytes > usual.engine.facts.locked_bytes  # a layer's activations go to host memory


@pytest.mark.full
def test_weights_in_host_memory_train_the_same_bits(make, tmp_path):
    """Pinned by the recipe; continued with from where they were on the card, and the other way round."""
    usual, hosted = make(), make(sections={"memory": {"weights": "host"}})
    count = len(hosted.engine.plan.layers)
    assert hosted.engine.plan.layers_on_host == tuple(range(count))
    assert len(hosted.engine.model.loaded.decoder.ring.layers) == count
    expected = [(one.loss, one.grad_norm) for one in usual.steps(6)]
    assert [(one.loss, one.grad_norm) for one in hosted.steps(3)] == expected[:3]
    hosted.engine.save_adapter(tmp_path / "adapter")
    resumed = make(sections={"memory": {"weights": "card"}}, adapter=tmp_path / "adapter", step=3)
    assert not resumed.engine.plan.layers_on_host
    resumed.engine.restore_optimizer(hosted.engine.optimizer_tensors())
    assert [(one.loss, one.grad_norm) for one in resumed.steps(3)] == expected[3:]


@pytest.mark.full
def test_layers_for_ranks_stay_on_the_card_of_a_run_that_has_one_process_and_it_says_so(make):
    usual, alone = make(), make(sections={"memory": {"weights": "ranks"}})
    assert any("ranks" in note for note in alone.engine.notes)
    assert not any("ranks" in note for note in usual.engine.notes)
    assert not alone.engine.plan.layers_on_ranks
    assert [step.loss for step in alone.steps(2)] == [step.loss for step in usual.steps(2)]


@pytest.mark.full
def test_embeddings_are_where_the_plan_puts_them(make, monkeypatch):
    asked = []
    load = fast_engine.load_decoder
    monkeypatch.setattr(
        fast_engine, "load_decoder", lambda source, options: asked.append(options) or load(source, options)
    )
    usual = make().engine.plan
    plan = usual.model_copy(update={"embedding_on_host": True})
    monkeypatch.setattr(fast_engine, "choose_memory_plan", lambda *_args, **_settings: plan)
    make()
    assert [(one.embedding_on_host, one.head_on_host) for one in asked] == [(False, False), (True, False)]


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "schedule_free"])
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_room_for_the_copy_suffices(make, engine, optimizer):
    """The copy holds the trained weights and what the optimizer keeps of each."""
    made = make({"max_steps": 2}, {"train": {"engine": engine, "optimizer": optimizer}})
    made.steps(1)
    inner = made.engine
    held = [value.nbytes for value in inner.optimizer_tensors().values()]
    weights = inner.model.optimizer.param.nbytes if engine == "fast" else sum(v.nbytes for _, v in inner.parameters)
    assert inner.facts.state_bytes >= weights + sum(size for size in held if size > 8)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_the_guard_sees_weights_in_host_memory(make, quantize):
    engine = make(sections={"memory": {"weights": "host"}, "model": {"quantize": quantize}}).engine
    before = checksums(FastProbe(engine).frozen())
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == []
    host = engine.model.loaded.decoder.ring.layers[1]
    host[len(host) // 3] ^= 1
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == ["layer 1 in host memory"]


@pytest.mark.full
def test_the_guard_sees_the_codes_that_make_logits(make):
    engine = make(sections={"train": {"products": "int8"}}, precision="bf16").engine
    before = checksums(FastProbe(engine).frozen())
    engine.model.loaded.decoder.head.codes()["codes"][3] += 1
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == ["head's codes"]


def test_the_guard_may_look_at_more_tokens_than_training_has_in_a_pass(make):
    """The guard's rows do not fit the host memory that offloaded activations of such short passes have."""
    batch = pass_of(choose_rows(make().data.train))
    small = {"rows": 1, "epochs": 50.0, "max_steps": 2}
    hosted, usual = make(small, {"memory": {"layers": "host"}}), make(small)
    assert batch.tokens > max(layout.capacity for layout in hosted.engine.layouts)
    assert FastProbe(hosted.engine).audit(batch) == FastProbe(usual.engine).audit(batch)


@pytest.mark.full
def test_a_run_goes_on_with_another_plan(make):
    """From a step on: what was trained stays, the order continues, and losses are those of that plan."""
    usual, changing = make(), make()
    expected = usual.steps(6)
    found = changing.steps(3)
    changing.engine.use_plan(MemoryPlan(layers=("attention",) * len(changing.engine.plan.layers), head_rows=64))
    changing.engine.start(3, changing.budget.steps, changing.budget.micro_batches)
    found += changing.steps(3)
    assert [one.step for one in found] == [1, 2, 3, 4, 5, 6]
    assert [one.loss for one in found] == pytest.approx([one.loss for one in expected], rel=1e-5)


@pytest.mark.full
def test_recomputing_gives_the_same_losses(make):
    kept, recomputed = make(), make(sections={"train": {"recompute": True}})
    assert [one.loss for one in kept.steps(4)] == pytest.approx([one.loss for one in recomputed.steps(4)], rel=1e-6)
