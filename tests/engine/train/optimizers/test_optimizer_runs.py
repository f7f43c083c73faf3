"""Every optimizer in both engines: the same training, schedules, averages, bytes."""

import pytest
import torch
from engine.train.optimizers.optimizer_run import (
    BY_TURNS,
    CUDA,
    ENGINES,
    HALF_WARM,
    MAGMA,
    NO_DROPOUT,
    TOTAL,
    state_of,
)
from safetensors.torch import load_file

from burnish_engine.advise.facts.trained_bytes import flat_optimizer_bytes
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.train.base.schedule import learning_rate
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.optimizers.library_step import LibraryStep
from burnish_engine.train.plain import plain_engine

from support.runs.shelf import AVERAGING, OPTIMIZERS, rate_of
from support.runs.steps import PASSES, train, trainer


@pytest.mark.full
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_both_engines_train_alike(run, name):
    """Gradients differ in their last digits; Muon and Lion make more of those than the others."""
    total = 12  # Adafactor moves a loss of 5.9 by 0.006 in 8
    fast, slow = (run(name, engine, total=total, **NO_DROPOUT) for engine in ENGINES)
    start = fast.held_out()
    one, other = fast.steps(total), slow.steps(total)
    assert [loss for loss, _ in one] == pytest.approx([loss for loss, _ in other], rel=1e-3)
    assert fast.held_out() == pytest.approx(slow.held_out(), rel=1e-3)
    assert fast.held_out() < start - 0.01


@pytest.mark.full
@pytest.mark.parametrize(("name", "engine"), BY_TURNS)
def test_the_schedule_s_rate_reaches_the_optimizer(run, name, engine):
    """Without weight decay the first step is as long as its learning rate says."""
    moved, rates = [], []
    for warmup in (0.5, 0.0):
        one = run(name, engine, train={"schedule": "wsd", "warmup_share": warmup, "weight_decay": 0.0}, **NO_DROPOUT)
        before = weights_of(one)
        one.engine.queue_step()
        [result] = one.engine.results(wait=True)
        moved.append(weights_of(one) - before)
        rates.append(learning_rate(one.recipe.train, 1, TOTAL))
        assert result.learning_rate == rates[-1]
    wanted = moved[1] * (rates[0] / rates[1])
    assert rates[0] < 0.5 * rates[1]
    assert (moved[0] - wanted).norm() < 1e-2 * wanted.norm()


def weights_of(one):
    return torch.cat([value.flatten() for key, value in state_of(one).items() if key.startswith("param")])


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name, engine in BY_TURNS if engine == "plain"])
def test_a_step_that_is_not_finite_advances_nothing_on_the_plain_engine(run, name, monkeypatch):
    one = run(name, "plain", train=HALF_WARM)
    one.steps(3)
    before, real = state_of(one), plain_engine.summed_loss
    with monkeypatch.context() as patch:
        patch.setattr(plain_engine, "summed_loss", lambda *args: real(*args) * float("nan"))
        one.engine.queue_step()
    assert [result.taken for result in one.engine.results(wait=True)] == [False]
    after = state_of(one)
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    one.steps(1)
    assert not all(torch.equal(value, after[key]) for key, value in state_of(one).items())


@pytest.mark.full
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_schedule_free_evaluates_answers_and_saves_by_the_average(run, tmp_path, monkeypatch, engine, masked):
    """What is saved is what was evaluated and asked, and not what is trained on."""
    one = run("schedule_free", engine, **NO_DROPOUT, **(MAGMA if masked else {}))
    one.steps(6)
    loss = one.held_out()
    asked = []

    def answer(*_, **__):
        fast = isinstance(one.engine, FastEngine)
        values = one.engine.model.adapter.named().values() if fast else [value for _, value in one.engine.parameters]
        asked.append(sum(float(value.detach().double().sum()) for value in values))

    for module in (fast_engine, plain_engine):
        monkeypatch.setattr(module, "generate_replies", answer)
    one.engine.replies([[1, 2]], 3)
    one.engine.save_adapter(tmp_path / "saved")
    loaded = run("adamw", engine, trained=tmp_path / "saved", **NO_DROPOUT)
    assert loaded.held_out() == pytest.approx(loss, rel=1e-6)
    saved = load_file(tmp_path / "saved" / "adapter_model.safetensors")
    named = {
        key.replace(".default.", ".").replace("/y", ""): value
        for key, value in one.engine.optimizer_tensors().items()
        if key.endswith("/y")
    }
    assert named.keys() == saved.keys()
    assert not any(torch.equal(named[key], value) for key, value in saved.items())
    assert asked == [pytest.approx(sum(float(value.double().sum()) for value in saved.values()), rel=1e-6)]


@pytest.mark.full
def test_muon_leaves_embeddings_and_vectors_to_adamw(run):
    one = run("muon", "plain", adapter={"method": "full"})
    one.steps(1)
    muon, adamw = one.engine._optimizer.parts
    mine = {id(value) for group in muon.param_groups for value in group["params"]}
    rest = {id(value) for group in adamw.param_groups for value in group["params"]}
    for name, value in one.engine.parameters:
        assert id(value) in (rest if "embed" in name or value.ndim == 1 else mine), name
    assert {group["weight_decay"] for group in adamw.param_groups} == {0.1, 0.0}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("name", "masked"), [*((name, False) for name in OPTIMIZERS), *((name, True) for name in OPTIMIZERS)]
)
def test_what_the_fast_engine_holds_is_predicted_byte_for_byte(run, name, masked):
    one = run(name, adapter={"rank": 64}, **(MAGMA if masked else {}))  # no matrix of it is padded
    one.steps(1)
    optimizer, adapter = one.engine.model.optimizer, one.recipe.adapter
    held = sum(flat.nbytes for flat in optimizer.flat_state.values())
    if name != "adamw":
        in_8_bits = "8bit" in name
        direct = name in AVERAGING or ((in_8_bits or name == "adafactor") and not masked)
        left = [] if direct else [optimizer._target]
        left += [optimizer._momentum] if in_8_bits and masked else []
        library = optimizer.library_tensors() if isinstance(optimizer, LibraryStep) else {}
        skipped = ("dynamic", "udynamic", "group/")
        left += [value for key, value in library.items() if not key.startswith(skipped) and not key.endswith("/step")]
        held += sum(value.nbytes for value in left)
    spec = open_model(one.recipe.model.path).spec
    assert flat_optimizer_bytes(spec, adapter, name, cuda=False, masked=masked).device == held


def recipe(text):
    return parse_recipe(f"[data]\nfiles = ['x.jsonl']\n{text}")


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match=r"train.lora_plus_ratio = 16 is of adapters"):
        recipe('[adapter]\nmethod = "full"\n[train]\nlora_plus_ratio = 16.0')
    with pytest.raises(UsageError, match="beta1 must be above 0"):
        recipe('[train]\noptimizer = "schedule_free"\nbeta1 = 0.0')
    assert recipe('[train]\noptimizer = "adamw"\nbeta1 = 0.0').train.beta1 == 0.0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("engine", "settings", "notes"),
    [
        ("fast", {"optimizer": "adamw", "momentum": 0.9}, ["train.momentum does not apply"]),
        ("plain", {"optimizer": "lion", "beta2": 0.9, "epsilon": 1e-6}, ["train.beta2 and train.epsilon do not apply"]),
        ("fast", {"optimizer": "muon", "momentum": 0.9, "beta2": 0.9}, []),
        ("plain", {"optimizer": "adafactor", "beta1": 0.8}, ["train.beta1 does not apply"]),
        ("fast", {"optimizer": "schedule_free", "schedule": "constant"}, []),
        ("plain", {"optimizer": "schedule_free"}, ['is made for train.schedule = "constant"']),
    ],
)
def test_settings_without_effect_are_told(run, engine, settings, notes):
    one = run(settings["optimizer"], engine, train=settings)
    assert len(one.engine.notes) == len(notes)
    assert all(words in note for words, note in zip(notes, one.engine.notes, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_captured_passes_and_updates_are_all_eager_steps(adapted_llama, name, dtype):
    section = TrainSection(optimizer=name, learning_rate=rate_of(name), weight_decay=0.01, lora_plus_ratio=2.0)
    found = []
    for graphs in (True, False):
        one = trainer(*adapted_llama[:2], section=section, dtype=dtype, device=CUDA, graphs=graphs)
        results, param = train(one, PASSES * 5, 2)
        assert any(program.captured for program in one.steps.values()) == graphs
        assert (one._update_graph is not None) == (graphs and name in ("adamw", "muon"))
        assert one.problem == ""
        found.append(([(result.loss, result.grad_norm, result.taken) for result in results], param))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.gpu
@pytest.mark.parametrize("masking", [{}, MAGMA], ids=["plain", "magma"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_models_on_a_gpu_train_as_on_the_cpu(run, tmp_path, name, masking):
    sections = {"adapter": {"method": "full"}, "precision": "fp32", "train": HALF_WARM, **masking}
    here, there = run(name, "plain", **sections), run(name, "plain", device=CUDA, **sections)
    expected, found = here.steps(4), there.steps(4)
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-2)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    there.engine.save_adapter(tmp_path / "model")
    weights = sum(value.nbytes for _, value in there.engine.parameters)
    held = name in AVERAGING  # to go back to the bit from the average, which is saved; counted in the estimate
    assert torch.cuda.max_memory_allocated() - before < (held + 0.5) * weights  # nothing else is cloned on the card
