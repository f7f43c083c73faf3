"""The shelf for modules of transformers and PEFT: each optimizer is its library's, to the bit, and comes back so."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers import optimizer as shelf
from burnish_engine.train.optimizers.optimizer import make_optimizer
from burnish_engine.train.optimizers.optimizer_state import optimizer_tensors, restore_optimizer

from support.runs.shelf import AVERAGING, OPTIMIZERS, NumpyScheduleFree, rate_of, straight

SHAPES = {"first": (96, 70), "small": (8, 8), "embed": (50, 40), "norm": (70,)}
TABLES = {"embed"}
STEPS = 50


def section(name, **settings):
    return TrainSection(**{"optimizer": name, "learning_rate": rate_of(name), "weight_decay": 0.1, **settings})


def weights(seed=0):
    random = torch.Generator().manual_seed(seed)
    return {name: torch.nn.Parameter(torch.randn(shape, generator=random)) for name, shape in SHAPES.items()}


def give_gradients(values, seed):
    random = torch.Generator().manual_seed(seed)
    for value in values.values():
        value.grad = torch.randn(value.shape, generator=random) * 0.1


def made(name, values, **settings):
    return make_optimizer(section(name, **settings), list(values.items()), tables=TABLES)


@pytest.mark.full
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_are_the_library_s_to_the_bit(name):
    """Muon's matrices are Muon's, and the rest of it AdamW's; vectors do not decay."""
    ours, theirs = weights(), weights()
    rate = rate_of(name)
    one = made(name, ours)
    matrices = [theirs["first"], theirs["small"]]
    if name == "muon":
        others = [
            straight("muon", [(matrices, 0.1, rate)], rate),
            straight("adamw", [([theirs["embed"]], 0.1, rate), ([theirs["norm"]], 0.0, rate)], rate, foreach=True),
        ]
    else:
        groups = [([*matrices, theirs["embed"]], 0.1, rate), ([theirs["norm"]], 0.0, rate)]
        others = [straight(name, groups, rate, **({"foreach": True} if name == "adamw" else {}))]
    for step in range(STEPS):
        now = rate * min(1.0, (step + 1) / 10) * (1.0 if step < 30 else 0.5)
        one.set_rate(now)
        for other in others:
            for group in other.param_groups:
                group["lr"] = now
        for values in (ours, theirs):
            give_gradients(values, step)
        one.step()
        for other in others:
            other.step()
    for key, value in ours.items():
        assert torch.equal(value, theirs[key]), key
        assert not torch.equal(value, weights()[key])


def test_schedule_free_is_the_paper_s():
    values, rate = weights(), 1e-2
    one = made("schedule_free", values, learning_rate=rate)
    exact = {
        key: NumpyScheduleFree(value.detach(), decay=0.1 if value.ndim > 1 else 0.0) for key, value in values.items()
    }
    for step in range(STEPS):
        now = rate * min(1.0, (step + 1) / 10)
        one.set_rate(now)
        give_gradients(values, step)
        for key, value in values.items():
            exact[key].step(value.grad.double().numpy(), now)
        one.step()
    for key, value in values.items():
        np.testing.assert_allclose(value.detach(), exact[key].y, rtol=0, atol=2e-6)
    before = {key: value.detach().clone() for key, value in values.items()}
    with one.averaged() as others:
        assert others
        for key, value in values.items():
            np.testing.assert_allclose(value.detach(), exact[key].x, rtol=0, atol=2e-6)
            assert np.abs(exact[key].x - exact[key].y).max() > 1e-3
    assert all(torch.equal(value, before[key]) for key, value in values.items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_only_schedule_free_has_an_average(name):
    values = weights()
    one = made(name, values)
    with one.averaged() as others:
        assert not others  # nothing was trained yet
    give_gradients(values, 0)
    one.step()
    with one.averaged() as others:
        assert others == (name == "schedule_free")


def test_what_goes_wrong_while_averages_are_in_use_leaves_what_was_there():
    values = weights()
    one = made("schedule_free", values)
    for step in range(3):
        give_gradients(values, step)
        one.step()
    before = {key: value.detach().clone() for key, value in values.items()}
    with pytest.raises(RuntimeError, match="evaluation"), one.averaged():
        raise RuntimeError("evaluation")
    assert all(torch.equal(value, before[key]) for key, value in values.items())
    give_gradients(values, 3)
    one.step()  # it trains again


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_vectors_do_not_decay_and_matrices_do(name):
    """Without a gradient nothing else moves."""
    values = weights()
    one = made(name, values, weight_decay=0.5, learning_rate=0.1)
    for value in values.values():
        value.grad = torch.zeros_like(value)
    one.step()
    start = weights()
    assert torch.equal(values["norm"], start["norm"])
    for key in ("first", "small", "embed"):
        torch.testing.assert_close(values[key], start[key] * 0.95, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lora_plus_makes_b_learn_faster(name):
    shapes = {"layer.lora_A.default.weight": (4, 64), "layer.lora_B.default.weight": (64, 4)}
    moved = []
    for ratio in (1.0, 4.0):
        random = torch.Generator().manual_seed(0)
        values = {key: torch.nn.Parameter(torch.randn(shape, generator=random)) for key, shape in shapes.items()}
        start = {key: value.detach().clone() for key, value in values.items()}
        one = made(name, values, weight_decay=0.0, learning_rate=1e-2, lora_plus_ratio=ratio)
        one.set_rate(5e-3)
        give_gradients(values, 0)
        one.step()
        moved.append([value.detach() - start[key] for key, value in values.items()])
    (a, b), (same, faster) = moved
    assert torch.equal(a, same)
    torch.testing.assert_close(faster, 4 * b, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_is_plain_tensors_and_comes_back_to_the_bit(name, tmp_path):
    from safetensors.torch import load_file, save_file

    values = weights()
    one = made(name, values)
    assert optimizer_tensors(one, list(values.items())) == {}
    for step in range(7):
        one.set_rate(1e-3 * (step + 1))  # in the middle of warmup
        give_gradients(values, step)
        values["small"].grad = None if step < 3 else values["small"].grad  # as an expert's that no token has visited
        one.step()
    if name in AVERAGING:
        with one.averaged():
            saved_weights = {key: value.detach().clone() for key, value in values.items()}
    else:
        saved_weights = {key: value.detach().clone() for key, value in values.items()}
    save_file(optimizer_tensors(one, list(values.items())), tmp_path / "state.safetensors")
    again = {key: torch.nn.Parameter(value) for key, value in saved_weights.items()}
    other = made(name, again)
    restore_optimizer(other, list(again.items()), load_file(tmp_path / "state.safetensors"))
    for step in range(7, 15):
        for values_of, optimizers in ((values, one), (again, other)):
            optimizers.set_rate(1e-3 * (step + 1))
            give_gradients(values_of, step)
            optimizers.step()
    assert all(torch.equal(value, again[key]) for key, value in values.items())
    first, second = (optimizer_tensors(*pair) for pair in ((one, list(values.items())), (other, list(again.items()))))
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_was_never_trained_comes_back_too(name):
    values = weights()
    one = made(name, values)
    give_gradients(values, 0)
    one.step()
    restore_optimizer(one, list(values.items()), {})
    assert optimizer_tensors(one, list(values.items())) == {}
    fresh = {key: torch.nn.Parameter(value.detach().clone()) for key, value in values.items()}
    other = made(name, fresh)
    for values_of, optimizers in ((values, one), (fresh, other)):
        give_gradients(values_of, 1)
        optimizers.step()
    assert all(torch.equal(value, fresh[key]) for key, value in values.items())


@pytest.mark.parametrize("name", ["adamw8bit", "paged_adamw8bit"])
def test_8_bit_moments_are_forgotten_where_they_lie(name):
    """bitsandbytes never gives paged memory back, so that a second set would stay beside the first."""
    values = weights()
    one = made(name, values)
    kept = []
    for step in range(2):
        give_gradients(values, step)
        one.step()
        states = [state for part in one.parts for state in part.state.values()]
        kept.append([state[key].data_ptr() for state in states for key in ("state1", "state2")])
        restore_optimizer(one, list(values.items()), {})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 2 * len(values)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_others_is_refused(name):
    values = weights()
    one = made(name, values)
    give_gradients(values, 0)
    one.step()
    saved = optimizer_tensors(one, list(values.items()))
    del saved["first/step"]
    with pytest.raises(KeyError):
        restore_optimizer(one, list(values.items()), saved)


@pytest.mark.parametrize("name", ["lion", "schedule_free", "adamw8bit"])
def test_a_library_that_cannot_be_loaded_is_named(name, monkeypatch):
    def missing(package):
        raise ImportError(f"no {package}")

    monkeypatch.setattr(shelf.importlib, "import_module", missing)
    with pytest.raises(SetupError, match=f"which '{name}' needs, could not be loaded") as told:
        made(name, weights())
    assert 'train.optimizer = "adamw"' in told.value.remedy
