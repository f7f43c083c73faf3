"""What every optimizer keeps, in both forms: it is its library's, decays what it shall, and comes back to the bit."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from engine.train.optimizers.forms import SEGMENTS, Flat, Modules, same
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.train.optimizers import optimizer as shelf
from burnish_kernels.adamw import op
from burnish_kernels.magma.op import Magma

from support.runs.shelf import AVERAGING, OPTIMIZERS, NumpyScheduleFree, rate_of

STEPS = 50
# Of what was moved after 50 steps; on a GPU gradients are clipped in another order of rounding, and a sign of Lion's or
# a code of 8 bits falls otherwise now and then.
WITHIN = {"cpu": 2e-5, "cuda": 2e-2}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


@pytest.fixture(params=["flat", "modules", pytest.param("flat on a GPU", marks=pytest.mark.gpu)])
def form(request):
    """Either form: (optimizer, settings) -> what steps."""
    return {"flat": Flat, "modules": Modules}.get(request.param, partial(Flat, device="cuda"))


@pytest.mark.full
@pytest.mark.parametrize("max_norm", [0.0, 2.0])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in OPTIMIZERS),
        ("adamw", {"whole": True}), ("adamw8bit", {"masked": True}), ("adafactor", {"masked": True}),
    ],
)  # fmt: skip
def test_fifty_steps_are_the_library_s(form, name, options, max_norm):
    """Parameters' to the bit; flat buffers' clipped before the moments see it. The learning rate rises and falls."""
    if set(options) - ({"whole"} if form is Modules else {"masked"}) or (max_norm and form is Modules):
        pytest.skip("of the other form")
    one = form(name, **options)
    leaves, began = [torch.nn.Parameter(value) for value in one.weights], torch.cat([w.flatten() for w in one.weights])
    others = one.library(name, leaves)
    for step in range(STEPS):
        now = rate_of(name) * min(1.0, (step + 1) / 10) * (1.0 if step < 30 else 0.5)
        one.take(step, now, **({"max_norm": max_norm} if max_norm else {}))
        for leaf, gradient in zip(leaves, one.gradients(step), strict=True):
            leaf.grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(leaves, max_norm) if max_norm else None
        for other in others:
            for group in other.param_groups:
                group["lr"] = now
            other.step()
        assert norm is None or norm > max_norm
        assert norm is None or float(one.one.status[op.GRADIENT_NORM]) == pytest.approx(float(norm), rel=1e-6)
    found = torch.cat([value.flatten() for value in one.weights])
    wanted = torch.cat([leaf.detach().flatten() for leaf in leaves])
    loose = name.endswith("8bit") or (name == "muon" and max_norm)  # last digits turn into codes, or into bf16's
    near = 2e-3 if loose and not found.is_cuda else WITHIN[found.device.type]
    assert (found - wanted).norm() <= (0.0 if form is Modules else near) * (wanted - began).norm()
    assert not torch.equal(found, began)
    if form is not Modules:
        assert one.one.counters.tolist() == [STEPS, STEPS, 0]
        assert not one.one.grad.any()
        assert_copies(one.one)


def assert_copies(one):
    """The compute copies are the scaled weights."""
    copies = one.layout.compute_copies(one.compute_buffer)
    for segment, view, compute_copy in zip(SEGMENTS, one.layout.views(one.param), copies, strict=True):
        assert torch.equal(compute_copy, view * segment.copy_scale)


@pytest.mark.parametrize("form", ["flat", "masked", "modules"])
def test_schedule_free_is_the_paper_s(form):
    """Masked, z goes the way that the mask says, the average of all z continues, and gradients are taken between."""
    one = Modules("schedule_free") if form == "modules" else Flat("schedule_free", masked=form == "masked")
    exact = [
        NumpyScheduleFree(value.numpy(), decay=0.1 if decays else 0.0)
        for value, decays in zip(one.weights, one.decays, strict=True)
    ]
    means, aligned, slept = [np.zeros_like(each.z) for each in exact], [0.5] * len(exact), set()
    if form == "masked":
        one.one.modifier = Magma(one.one.layout, range(6), seed=5)
    for step in range(STEPS):
        rate = 1e-2 * min(1.0, (step + 1) / 10)
        one.take(step, rate)
        ways = one.one.modifier.last.tolist() if form == "masked" else [1.0] * len(exact)
        for index, (each, gradient) in enumerate(zip(exact, one.gradients(step), strict=True)):
            g = gradient.double().numpy()
            norms = np.linalg.norm(means[index]) * np.linalg.norm(g)
            cosine = (means[index] * g).sum() / norms if norms else 0.0
            aligned[index] = 0.9 * aligned[index] + 0.1 / (1 + math.exp(-cosine / 2))
            means[index] = 0.9 * means[index] + 0.1 * g
            assert form != "masked" or ways[index] == 0.0 or ways[index] == pytest.approx(aligned[index], rel=1e-5)
            slept.add(ways[index] == 0.0)
            each.step(g, rate, way=ways[index])
    assert slept == ({True, False} if form == "masked" else {False})
    for value, each in zip(one.weights, exact, strict=True):
        np.testing.assert_allclose(value, each.y, rtol=0, atol=2e-6)
    before = one.state()
    with pytest.raises(RuntimeError, match="evaluation"), one.averaged() as others:
        assert others
        for value, each in zip(one.weights, exact, strict=True):
            np.testing.assert_allclose(value, each.x, rtol=0, atol=2e-6)
        if form != "modules":
            assert_copies(one.one)
        raise RuntimeError("evaluation")
    assert max(np.abs(each.x - each.y).max() for each in exact) > 1e-3
    assert same(before, one.state())


@every_optimizer
def test_only_schedule_free_has_an_average(form, name):
    one = form(name)
    with one.averaged() as others:
        assert not others  # nothing was trained yet
    one.take(0)
    with one.averaged() as others:
        assert others == (name in AVERAGING)


@every_optimizer
def test_vectors_do_not_decay_and_matrices_do(form, name):
    """Without a gradient nothing else moves."""
    one = form(name, weight_decay=0.5)
    before = one.weights
    one.take(0, 0.1, scale=0.0)
    for value, old, decays in zip(one.weights, before, one.decays, strict=True):
        torch.testing.assert_close(value, old * (0.95 if decays else 1.0), rtol=1e-5, atol=1e-7)


@every_optimizer
def test_lora_plus_makes_b_learn_faster(form, name):
    moved = []
    for ratio in (1.0, 4.0):
        one = form(name, ratio=ratio, weight_decay=0.0)
        before = one.weights
        one.take(0, 1e-3)
        moved.append([value - old for value, old in zip(one.weights, before, strict=True)])
    for usual, faster, is_b in zip(*moved, one.are_b, strict=True):
        torch.testing.assert_close(faster, usual * (4.0 if is_b else 1.0), rtol=1e-3, atol=1e-6)
        assert usual.any()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("masked", [False, True])
@every_optimizer
def test_a_resumed_step_is_the_uninterrupted_one_to_the_bit(form, name, masked, tmp_path):
    """From plain tensors, in the middle of warmup, with masks; into state that has continued meanwhile too."""
    if form is Modules and masked:
        pytest.skip("masks are of flat buffers")
    flat = {} if form is Modules else {"masked": masked}
    one, resumed, fresh = (form(name, **flat, **more) for more in ({"loss_scale": 4.0} if flat else {}, {}, {}))
    for each in (one, resumed, fresh) if masked else ():
        each.one.modifier = Magma(each.one.layout, range(6), seed=2**40)
    how = {"scale": 4.0} if flat else {"without": ["embed"]}  # as an expert that no token has visited
    for step in range(3):
        one.take(step, **how)
    resumed.take(17)
    weights, tensors = one.save()
    save_file(tensors, tmp_path / "state.safetensors")
    for each in (resumed, fresh):
        each.restore(weights, load_file(tmp_path / "state.safetensors"))
    for step in range(3, 9):
        for each in (one, resumed, fresh):
            each.take(step, scale=4.0 if flat else 1.0)
    for each in (resumed, fresh):
        assert same(one.state(), each.state())


@every_optimizer
def test_what_was_never_trained_comes_back_too(name):
    one, fresh = Modules(name), Modules(name)
    assert one.save()[1] == {}
    one.take(0)
    one.restore(fresh.weights, {})
    assert one.save()[1] == {}
    for each in (one, fresh):
        each.take(1)
    assert same(one.state(), fresh.state())


@every_optimizer
def test_the_state_of_others_is_refused(form, name):
    ending = "/step" if form is Modules else "/state1"
    if form is not Modules and "8bit" not in name:
        pytest.skip("flat buffers of another adapter have other names")
    one = form(name)
    one.take(0)
    weights, tensors = one.save()
    del tensors[min(key for key in tensors if key.endswith(ending))]
    with pytest.raises(KeyError):
        form(name).restore(weights, tensors)


@pytest.mark.parametrize("name", ["adamw8bit", "paged_adamw8bit"])
def test_8_bit_moments_are_forgotten_where_they_lie(name):
    """bitsandbytes never gives paged memory back, so that a second set would stay beside the first."""
    one, kept = Modules(name), []
    for step in range(2):
        one.take(step)
        states = [state for part in one.made.parts for state in part.state.values()]
        kept.append([state[key].data_ptr() for state in states for key in ("state1", "state2")])
        one.restore(one.weights, {})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 2 * len(one.weights)


@pytest.mark.parametrize("name", ["lion", "schedule_free", "adamw8bit"])
def test_a_library_that_cannot_be_loaded_is_named(name, monkeypatch):
    def missing(package):
        raise ImportError(f"no {package}")

    monkeypatch.setattr(shelf.importlib, "import_module", missing)
    with pytest.raises(SetupError, match=f"which '{name}' needs, could not be loaded") as told:
        Modules(name)
    assert 'train.optimizer = "adamw"' in told.value.remedy
