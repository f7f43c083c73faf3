"""The fast engine as a session uses it: loading, resuming, evaluating, speaking, saving; 4-bit models."""

import json

import pytest
import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.generate import generate_replies
from burnish_engine.models.transformers_path import plain
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.choose_engine import make_engine
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.guard.checksums import changed as changed_sums
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.guard.probe_checks import choose_rows, pass_of
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training

from support.models.bitsandbytes_files import save_quantized
from support.models.tiny import conversations, write_jsonl
from support.runs.tiny_runs import tiny_recipe

CPU = torch.device("cpu")


def changed(recipe, **sections):
    """The recipe with other settings: section=dict of settings."""
    updates = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return recipe.model_copy(update=updates)


class Made:
    """An engine and what it was made from."""

    def __init__(self, recipe, precision="fp32", device=CPU, adapter=None, step=0):
        self.recipe, self.source = recipe, open_model(recipe.model.path)
        self.tokenizer = load_tokenizer(self.source)
        self.data = prepare(recipe, self.tokenizer)
        self.stream = BatchStream(self.data.train, recipe.train)
        self.budget = self.stream.budget()
        self.engine = make_engine(
            EngineSpec(self.source, recipe, self.stream, self.tokenizer, precision, device, adapter)
        )
        self.engine.start(step, self.budget.steps, self.budget.micro_batches)

    def steps(self, count):
        """Results of so many further steps."""
        for _ in range(count):
            self.engine.queue_step()
        return list(self.engine.results(wait=True))


@pytest.fixture
def make(tmp_path):
    """Make engines over the tiny recipe: (settings of the recipe, sections, options of `Made`) -> Made."""
    made = []

    def make(settings=None, sections=None, **options):
        recipe = changed(tiny_recipe(tmp_path, **settings or {}), **sections or {})
        made.append(Made(recipe, **options))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def test_it_trains_what_the_plain_engine_trains(make):
    """Losses, gradient norms, counts and held-out losses of both, without dropout, with gradients clipped."""
    exact, clip = {"dropout": 0.0}, {"max_grad_norm": 0.05}
    fast, slow = (
        make(sections={"adapter": exact, "train": {"engine": engine, **clip}}) for engine in ("fast", "plain")
    )
    assert isinstance(fast.engine, FastEngine)
    assert isinstance(slow.engine, PlainEngine)
    held = fast.data.validation
    assert fast.engine.held_out_loss(held, 256) == pytest.approx(slow.engine.held_out_loss(held, 256), rel=1e-5)
    for one, other in zip(fast.steps(6), slow.steps(6), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)
        for name in ("step", "micro_batches", "tokens", "supervised", "learning_rate", "taken", "loss_scale"):
            assert getattr(one, name) == getattr(other, name), name
    assert fast.engine.held_out_loss(held, 256) == pytest.approx(slow.engine.held_out_loss(held, 256), rel=1e-5)


def test_replies_are_those_of_transformers(make, tmp_path):
    fast = make()
    fast.steps(4)
    fast.engine.save_adapter(tmp_path / "adapter")
    prompts = [fast.tokenizer(text)["input_ids"] for text in ("My lamp is", "The bike number 3 is broken again", "x")]
    replies = fast.engine.replies(prompts, 12)
    model = plain.load_adapter(plain.load_base(fast.source, "fp32", CPU), tmp_path / "adapter")
    assert replies == generate_replies(model, fast.tokenizer, prompts, 12)


def test_speaking_and_evaluating_change_nothing(make):
    quiet, busy = make(), make()
    expected = quiet.steps(5)
    found = []
    for _ in range(5):
        found += busy.steps(1)
        busy.engine.held_out_loss(busy.data.validation, 256)
        busy.engine.replies([[5, 6, 7]], 4)
    assert [(one.loss, one.grad_norm) for one in found] == [(one.loss, one.grad_norm) for one in expected]


MASKED = {"masking": {"kind": "magma"}}


DORA = {"adapter": {"method": "dora", "dropout": 0.0}}
SAVED = [
    {},
    MASKED,
    {"masking": {"kind": "skip_update", "share": "pair"}},
    DORA,
    {**DORA, "model": {"quantize": "nf4"}},
]


@pytest.mark.parametrize("sections", SAVED)
def test_it_goes_on_from_what_it_saved(make, tmp_path, sections):
    """Adapter and optimizer carried over to a new engine: the same bits, under dropout and masks too."""
    whole, begun = make(sections=sections), make(sections=sections)
    expected = whole.steps(7)
    begun.steps(3)
    begun.engine.save_adapter(tmp_path / "adapter")
    resumed = make(sections=sections, adapter=tmp_path / "adapter", step=3)
    resumed.engine.restore_optimizer(begun.engine.optimizer_tensors())
    assert [(one.step, one.loss) for one in resumed.steps(4)] == [(one.step, one.loss) for one in expected[3:]]
    whole.engine.save_adapter(tmp_path / "whole")
    resumed.engine.save_adapter(tmp_path / "resumed")
    files = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert files[0] == files[1]


def test_masked_matrices_sit_out_steps(make):
    """Which ones depends on the run's seed and the step alone; always and all the way is no masking."""
    usual, masked, again = make(), make(sections=MASKED), make(sections=MASKED)
    other = make({"seed": 1}, sections=MASKED)
    always = make(sections={"masking": {"kind": "skip_update", "probability": 1.0}})
    runs = usual, masked, again, other, always
    moved = []
    for one in runs:
        adapter = one.engine.model.adapter
        for _ in range(3):
            before = [matrix.clone() for matrix in adapter.tensors]
            one.steps(1)
            moved.append([not torch.equal(*pair) for pair in zip(before, adapter.tensors, strict=True)])
    plain, first, second, seeded, whole = (moved[index : index + 3] for index in range(0, 15, 3))
    assert all(map(all, plain[1:]))
    assert first == second != seeded
    assert 0.2 < sum(map(sum, first)) / sum(map(len, first)) < 0.8
    assert first[1] != first[2]
    assert whole == plain
    assert torch.equal(usual.engine.model.optimizer.param, always.engine.model.optimizer.param)


PINNED = {"layers": "narrow,host+attention:2", "mlp_rows": 40, "head_rows": 32}


def test_a_pinned_plan_is_carried_out(make):
    """Other pieces, the same training."""
    exact = {"adapter": {"dropout": 0.0}}  # pieces drop out differently
    usual, pinned = make(sections=exact), make(sections=exact | {"memory": PINNED})
    count = pinned.engine.model.loaded.decoder.spec.num_layers
    assert pinned.engine.plan.layers == ("narrow", "host", "attention", *["attention"] * count)[:count]
    assert (pinned.engine.plan.mlp_rows, pinned.engine.plan.head_rows) == (40, 32)
    assert {layer.feed_forward.mlp_chunk_tokens for layer in pinned.engine.model.loaded.decoder.layers} == {40}
    assert {layout.head_chunk_tokens for layout in pinned.engine._layouts} == {32}
    for one, other in zip(usual.steps(5), pinned.steps(5), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    assert pinned.engine.locked_bytes > usual.engine.locked_bytes  # a layer's activations go to host memory


def test_weights_in_host_memory_train_the_same_bits(make, tmp_path):
    """Pinned by the recipe; gone on with from where they were on the card, and the other way round."""
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


def test_layers_for_ranks_stay_on_the_card_of_a_run_that_has_one_process_and_it_says_so(make):
    usual, alone = make(), make(sections={"memory": {"weights": "ranks"}})
    assert any("ranks" in note for note in alone.engine.notes)
    assert not any("ranks" in note for note in usual.engine.notes)
    assert not alone.engine.plan.layers_on_ranks
    assert [step.loss for step in alone.steps(2)] == [step.loss for step in usual.steps(2)]


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


@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_a_new_adapter_has_the_numbers_of_the_runs_seed(make, tmp_path, engine):
    weights = []
    for number, seed in enumerate([0, 1, 1]):
        folder = tmp_path / f"adapter {number}"
        make({"seed": seed}, {"train": {"engine": engine}}).engine.save_adapter(folder)
        weights.append((folder / "adapter_model.safetensors").read_bytes())
    assert weights[0] != weights[1] == weights[2]


def test_an_engine_put_back_computes_with_what_was_put_back(make):
    """In 16 bits, where the weights to compute with are copies."""
    engine = (made := make(precision="bf16")).engine
    before = engine.held_out_loss(made.data.validation, 256)
    put_back = engine.snapshot()
    made.steps(3)
    assert engine.held_out_loss(made.data.validation, 256) != before
    put_back()
    assert engine.held_out_loss(made.data.validation, 256) == before


@pytest.mark.parametrize("optimizer", ["adamw", "schedule_free"])
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_room_for_the_copy_suffices(make, engine, optimizer):
    """The copy holds the trained weights and what the optimizer keeps of each."""
    made = make({"max_steps": 2}, {"train": {"engine": engine, "optimizer": optimizer}})
    made.steps(1)
    inner = made.engine
    held = [value.nbytes for value in inner.optimizer_tensors().values()]
    weights = inner.model.optimizer.param.nbytes if engine == "fast" else sum(v.nbytes for _, v in inner._parameters)
    assert inner.state_bytes >= weights + sum(size for size in held if size > 8)


@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_the_guard_sees_weights_in_host_memory(make, quantize):
    engine = make(sections={"memory": {"weights": "host"}, "model": {"quantize": quantize}}).engine
    before = checksums(FastProbe(engine).frozen())
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == []
    host = engine.model.loaded.decoder.ring.layers[1]
    host[len(host) // 3] ^= 1
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == ["layer 1 in host memory"]


def test_the_guard_may_look_at_more_tokens_than_training_has_in_a_pass(make):
    """The guard's rows do not fit the host memory that offloaded activations of such short passes have."""
    batch = pass_of(choose_rows(make().data.train))
    small = {"rows": 1, "epochs": 50.0, "max_steps": 2}
    hosted, usual = make(small, {"memory": {"layers": "host"}}), make(small)
    assert batch.tokens > max(layout.capacity for layout in hosted.engine._layouts)
    assert FastProbe(hosted.engine).audit(batch) == FastProbe(usual.engine).audit(batch)


def test_a_run_goes_on_with_another_plan(make):
    """From a step on: what was trained stays, the order goes on, and losses are those of that plan."""
    usual, changing = make(), make()
    expected = usual.steps(6)
    found = changing.steps(3)
    changing.engine.use_plan(MemoryPlan(layers=("attention",) * len(changing.engine.plan.layers), head_rows=64))
    changing.engine.start(3, changing.budget.steps, changing.budget.micro_batches)
    found += changing.steps(3)
    assert [one.step for one in found] == [1, 2, 3, 4, 5, 6]
    assert [one.loss for one in found] == pytest.approx([one.loss for one in expected], rel=1e-5)


def test_held_out_rows_may_be_longer_than_all_of_training(make, tmp_path):
    """One short training row makes small passes; the held-out rows still fit."""
    fast = make({"rows": 1, "epochs": 50.0, "max_steps": 2})
    long = conversations(3, offset=3)
    for row in long:
        row["messages"][1]["content"] *= 3
    write_jsonl(tmp_path / "held.jsonl", long)
    data = prepare(fast.recipe, fast.tokenizer)
    longest = max(len(document) for document in data.validation)
    assert longest > max(layout.capacity for layout in fast.engine._layouts)
    slow = make({"rows": 1, "epochs": 50.0, "max_steps": 2}, {"train": {"engine": "plain"}})
    wanted = slow.engine.held_out_loss(data.validation, 256)
    assert fast.engine.held_out_loss(data.validation, 256) == pytest.approx(wanted, rel=1e-5)


def test_targets_that_the_model_lacks_are_told(make):
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    (note,) = make(sections={"adapter": {"targets": [*names, "router", "experts"]}}).engine.notes
    assert "router, experts" in note
    with pytest.raises(UsageError, match="router"):
        make(sections={"adapter": {"targets": ["q_proj", "router"]}})


def test_coverage_is_counted_on_the_adapter_that_was_made(make):
    some = make(sections={"adapter": {"targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}}).engine.coverage
    assert {one.kind: one.reached / one.weights for one in some.kinds} == {"attention": 1.0, "feed-forward": 0.0}
    for engine in ("fast", "plain"):
        whole = make(sections={"train": {"engine": engine}}).engine.coverage
        assert [one.reached for one in whole.kinds] == [one.weights for one in whole.kinds]


def test_a_failed_capture_is_one_note(make):
    fast = make()
    fast.steps(1)
    problem = fast.engine._trainer.problem = "CUDA graphs could not be captured (why); training goes on without them."
    told = []
    for _ in range(3):
        fast.steps(1)
        told += [fast.engine.notes.pop(0) for _ in range(len(fast.engine.notes))]
    assert told == [problem]


def test_fp32_is_fp32_whatever_was_switched_on(make):
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = matmul.allow_bf16_reduced_precision_reduction = True
    make()
    assert not matmul.allow_tf32
    assert not matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_tf32 = True
    make(sections={"train": {"engine": "plain"}})
    assert not matmul.allow_tf32


def test_a_resumed_adapter_is_what_its_file_says(make, tmp_path):
    """Also where the recipe would make another one by now."""
    began = make(sections={"adapter": {"rank": 2}})
    began.steps(1)
    began.engine.save_adapter(tmp_path / "saved")
    resumed = make(sections={"adapter": {"rank": 4}}, adapter=tmp_path / "saved")
    for name, value in began.engine.model.adapter.named().items():
        torch.testing.assert_close(resumed.engine.model.adapter.named()[name], value, rtol=0, atol=0)


def test_lora_plus_makes_b_move_further(make):
    moved = {}
    for ratio in (1.0, 8.0):
        made = make({"warmup_share": 0.0, "weight_decay": 0.0, "schedule": '"constant"', "lora_plus_ratio": ratio})
        made.steps(1)
        moved[ratio] = {
            name: value.clone() for name, value in made.engine.model.adapter.named().items() if "lora_B" in name
        }
    assert moved[1.0]
    for name, one in moved[1.0].items():
        torch.testing.assert_close(moved[8.0][name], 8 * one, rtol=1e-4, atol=1e-6)


def test_recomputing_gives_the_same_losses(make):
    kept, recomputed = make(), make(sections={"train": {"recompute": True}})
    assert [one.loss for one in kept.steps(4)] == pytest.approx([one.loss for one in recomputed.steps(4)], rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_follow_fp32(make, precision):
    exact, rounded = make(), make(precision=precision)
    ours, theirs = ([one.loss for one in each.steps(8)] for each in (rounded, exact))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert ours[-1] < ours[0]


# 4 bits


def test_nf4_on_request_trains_close_to_16_bits(make):
    sections = {"adapter": {"dropout": 0.0}}
    exact = make(sections=sections)
    quantized = make(sections=sections | {"model": {"path": exact.recipe.model.path, "quantize": "nf4"}})
    assert quantized.engine.notes == []
    ours, theirs = ([one.loss for one in each.steps(8)] for each in (quantized, exact))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.05)
    assert ours[-1] < ours[0]


def test_a_checkpoint_in_4_bits_simply_trains_and_says_so(make, tmp_path):
    plain_weights = make(sections={"adapter": {"dropout": 0.0}})
    folder = save_quantized(plain_weights.source.folder, tmp_path / "quantized")
    sections = {"adapter": {"dropout": 0.0}}
    stored = make(sections=sections | {"model": {"path": str(folder), "quantize": "none"}})
    asked = make(sections=sections | {"model": {"path": str(folder), "quantize": "nf4"}})
    here = make(sections=sections | {"model": {"path": plain_weights.recipe.model.path, "quantize": "nf4"}})
    (note,) = stored.engine.notes
    assert "NF4" in note
    assert "QLoRA" in note
    assert asked.engine.notes == here.engine.notes == []
    expected = [one.loss for one in here.steps(3)]
    assert [one.loss for one in stored.steps(3)] == [one.loss for one in asked.steps(3)] == expected
    prompts = [[5, 6, 7, 8]]
    assert stored.engine.replies(prompts, 6) == here.engine.replies(prompts, 6)


def test_such_a_checkpoint_goes_through_a_whole_run(tmp_path):
    recipe = tiny_recipe(tmp_path, max_steps=3)
    folder = save_quantized(tmp_path / "base", tmp_path / "quantized")
    paths = create_run(changed(recipe, model={"path": str(folder)}), tmp_path / "run")
    outcome = run_training(paths)
    assert outcome.exit_code == 0, outcome.message
    events = list(read_events(paths.events))
    assert [event.engine for event in events if isinstance(event, RunStarted)] == ["fast"]
    assert any("QLoRA" in getattr(event, "message", "") for event in events)
    config = json.loads((paths.adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder)


def test_damaged_4_bit_weights_end_a_run_with_a_message(make, tmp_path):
    from safetensors.torch import load_file, save_file

    good = make()
    folder = save_quantized(good.source.folder, tmp_path / "quantized")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight.absmax"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(SetupError, match=r"down_proj\.weight\.absmax is not in the checkpoint"):
        make(sections={"model": {"path": str(folder)}})


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
        held = one.engine.held_out_loss(one.data.validation, 256)
        replies = one.engine.replies([[5, 6, 7], [8, 9]], 6)
        steps += one.steps(4)
        found.append(([(step.loss, step.grad_norm) for step in steps], held, replies))
        assert one.engine.notes == []
    assert captured
    assert found[0] == found[1]
