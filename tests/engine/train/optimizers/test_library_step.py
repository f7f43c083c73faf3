"""The fast engine's step with optimizers of libraries, against these on copies; masking, LoRA+ and skipped steps."""

import math

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.flat_step import flat_tensors, make_flat_step, make_library_step, restore_flat
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw import op
from burnish_kernels.adamw.op import FlatLayout, Segment, StepSettings
from burnish_kernels.magma.op import NEVER, Magma, MagmaOptions

from support.runs.shelf import AVERAGING, OPTIMIZERS, NumpyScheduleFree, rate_of, straight

LIBRARIES = OPTIMIZERS[1:]
NAMES = [f"layer.{index}.{letter}" for index in range(3) for letter in "AB"]
SEGMENTS = (  # two of neighbors that are large, one that is small, one without decay
    Segment(16, 300, 0, 320), Segment(301, 16, 8192, 16, 2.0),
    Segment(4, 90, 16384, 96), Segment(70, 4, 20000, 8, 2.0),
    Segment(16, 257, 32768, 257), Segment(1, 1100, 65536, 1100, 1.0, decay=False),
)  # fmt: skip
STEPS = 50
# Of what was moved after 50 steps; on a GPU gradients are clipped in another order of rounding, and a sign of Lion's or
# a code of 8 bits falls otherwise now and then.
WITHIN = {"cpu": 2e-5, "cuda": 2e-2}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


def made(name, device="cpu", *, kind=make_flat_step, loss_scale=1.0, ratio=1.0, masked=False, **settings):
    layout = FlatLayout(SEGMENTS, device)
    compute_buffer = torch.zeros(layout.copy_end, device=device)
    section = TrainSection(**{"optimizer": name, "learning_rate": rate_of(name), "weight_decay": 0.1, **settings})
    segments = TrainedSegments(layout, compute_buffer, NAMES, [1.0, ratio] * 3, loss_scale=loss_scale)
    one = kind(section, segments, masked=masked)
    generator = torch.Generator().manual_seed(0)
    for view in layout.views(one.param):
        view.copy_(torch.randn(view.shape, generator=generator))
    one.write_compute_copies()
    return one


def control(one, rate, max_norm=0.0, decay=0.1, growth=0):
    one.set_control(StepSettings(rate, weight_decay=decay, max_grad_norm=max_norm, growth_interval=growth))


def gradients(step, size=0.1):
    generator = torch.Generator().manual_seed(step)
    return [size * torch.randn(s.rows, s.columns, generator=generator) for s in SEGMENTS]


def fill(one, step, scale=1.0):
    for view, gradient in zip(one.layout.views(one.grad), gradients(step), strict=True):
        view.copy_(scale * gradient)


def take(one, step, rate=None, *, scale=1.0, **options):
    control(one, rate or 1e-3 * min(step + 1, 5), **options)
    fill(one, step, scale)
    one.step()


def everything(one):
    """All that steps change, by name."""
    return {"param": one.param.clone(), "compute_buffer": one.compute_buffer.clone(), **flat_tensors(one, NAMES)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.full
@pytest.mark.parametrize("max_norm", [0.0, 2.0])
@pytest.mark.parametrize(
    ("name", "masked"), [*((name, False) for name in LIBRARIES), ("adamw8bit", True), ("adafactor", True)]
)
def test_fifty_steps_are_the_library_s(name, masked, max_norm, device):
    """Clipped before the moments see it, under a learning rate that rises and falls, with weight decay."""
    one = made(name, device, masked=masked)
    leaves = [torch.nn.Parameter(view.clone()) for view in one.layout.views(one.param)]
    start, rate = one.param.clone(), rate_of(name)
    kind = "adamw8bit" if device == "cpu" and name == "paged_adamw8bit" else name
    groups = [(leaves[:5], 0.1, rate), (leaves[5:], 0.0, rate)]
    other = straight(kind, groups, rate)
    for step in range(STEPS):
        now = rate * min(1.0, (step + 1) / 10) * (1.0 if step < 30 else 0.5)
        control(one, now, max_norm)
        fill(one, step)
        for leaf, view in zip(leaves, one.layout.views(one.grad), strict=True):
            leaf.grad = view.clone()
        norm = torch.nn.utils.clip_grad_norm_(leaves, max_norm or math.inf)
        assert not max_norm or norm > max_norm
        for group in other.param_groups:
            group["lr"] = now
        other.step()
        one.step()
        assert float(one.status[op.GRADIENT_NORM]) == pytest.approx(float(norm), rel=1e-6)
    found = torch.cat([view.flatten() for view in one.layout.views(one.param)])
    began = torch.cat([view.flatten() for view in one.layout.views(start)])
    wanted = torch.cat([leaf.detach().flatten() for leaf in leaves])
    loose = name.endswith("8bit") or (name == "muon" and max_norm)  # last digits turn into codes, or into bf16's
    assert (found - wanted).norm() <= (2e-3 if loose and device == "cpu" else WITHIN[device]) * (wanted - began).norm()
    assert one.counters.tolist() == [STEPS, STEPS, 0]
    compute_copies = one.layout.compute_copies(one.compute_buffer)
    for segment, view, compute_copy in zip(SEGMENTS, one.layout.views(one.param), compute_copies, strict=True):
        assert torch.equal(compute_copy, view * segment.copy_scale)
    assert not one.grad.any()


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_it_moves_is_the_library_s_to_the_bit(name):
    """Without clipping and decay; from weights of 0 nothing is rounded once more."""
    one = made(name, masked=True)
    one.param.zero_()
    leaves = [torch.nn.Parameter(torch.zeros_like(view)) for view in one.layout.views(one.param)]
    kind = "adamw8bit" if name == "paged_adamw8bit" else name
    other = straight(kind, [(leaves, 0.0, 1e-3)], 1e-3)
    for step in range(6):
        for leaf, gradient in zip(leaves, gradients(step), strict=True):
            leaf.grad = gradient.clone()
            leaf.data.zero_()
        other.step()
        one.param.zero_()
        take(one, step, 1e-3, decay=0.0)
        for view, leaf in zip(one.layout.views(one.param), leaves, strict=True):
            assert torch.equal(view, leaf)


def test_schedule_free_is_the_paper_s():
    one = made("schedule_free")
    exact = [
        NumpyScheduleFree(view.numpy().copy(), decay=0.1 if segment.decay else 0.0)
        for segment, view in zip(SEGMENTS, one.layout.views(one.param), strict=True)
    ]
    for step in range(STEPS):
        rate = 1e-2 * min(1.0, (step + 1) / 10)
        take(one, step, rate)
        for each, gradient in zip(exact, gradients(step), strict=True):
            each.step(gradient.double().numpy(), rate)
    trained, compute_buffer = one.param.clone(), one.compute_buffer.clone()
    for view, each in zip(one.layout.views(one.param), exact, strict=True):
        np.testing.assert_allclose(view, each.y, rtol=0, atol=2e-6)
    with one.averaged():
        compute_copies = one.layout.compute_copies(one.compute_buffer)
        for segment, view, compute_copy, each in zip(
            SEGMENTS, one.layout.views(one.param), compute_copies, exact, strict=True
        ):
            np.testing.assert_allclose(view, each.x, rtol=0, atol=2e-6)
            assert torch.equal(compute_copy, view * segment.copy_scale)
    assert torch.equal(one.param, trained)
    assert torch.equal(one.compute_buffer, compute_buffer)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_skipped_step_advances_nothing(name, bad, device):
    """The same bits as a run that never had it; of the counters only the one of skipped steps differs."""
    one, other = (made(name, device, masked=True) for _ in range(2))
    for each in (one, other):
        each.modifier = Magma(each.layout, range(6), seed=3)
    for step in range(3):
        take(one, step)
        take(other, step)
    before = everything(one)
    take(one, 3, scale=bad)
    after = everything(one)
    assert after.pop("counters").tolist() == [3, 0, 1]
    before.pop("counters")
    assert same(before, after)
    assert not one.grad.any()
    assert one.status[op.TAKEN] == 0.0
    for step in range(4, 7):
        take(one, step)
        take(other, step)
    assert torch.equal(one.param, other.param)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("after", [False, True])
def test_muon_for_matrices_alone_has_the_bits_of_the_one_that_leaves_others_to_adamw(after, device):
    """The one that a CUDA graph can hold beside the library's, with masks, clipping and a rate of B's own."""
    kinds = make_flat_step, make_library_step
    ours, other = (made("muon", device, kind=kind, ratio=2.0, masked=True) for kind in kinds)
    assert (ours.capturable, other.capturable) == (True, False)
    for each in (ours, other):
        each.modifier = Magma(each.layout, range(6), seed=3, options=MagmaOptions(momentum_after=after))
    for step in range(8):
        for each in (ours, other):
            take(each, step, scale=math.inf if step == 4 else 1.0, max_norm=2.0)
        assert same(everything(ours), everything(other))


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_overflow_halves_the_scale_and_advances_nothing(name):
    one, other = made(name, loss_scale=2.0**14), made(name)
    for step in range(4):
        take(one, step, scale=float(one.loss_scale), growth=2000, max_norm=1.0)
        take(other, step, max_norm=1.0)
        if step == 1:
            take(one, step, scale=math.inf, growth=2000, max_norm=1.0)
    assert float(one.loss_scale) == 2.0**13
    assert torch.equal(one.param, other.param)  # a power of two changes no bits


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", LIBRARIES)
def test_always_and_all_the_way_is_the_base_to_the_bit(name, after, device):
    """With a learning rate of B's own too. Alone, 8-bit AdamW and Adafactor change the weights and round once less."""
    plain, masked = (made(name, device, ratio=2.0, masked=one) for one in (False, True))
    options = MagmaOptions(probability=1.0, start=1.0, decay=1.0, momentum_after=after)
    masked.modifier = Magma(masked.layout, range(6), seed=1, options=options)
    for step in range(8):
        take(plain, step, max_norm=2.0)
        take(masked, step, max_norm=2.0)
        if name.endswith("8bit") or name == "adafactor":
            # On a GPU bitsandbytes decays the weights after the step, ours before it.
            torch.testing.assert_close(masked.param, plain.param, rtol=1e-6, atol=1e-7 if device == "cpu" else 2e-4)
            continue
        assert torch.equal(plain.param, masked.param)
        assert torch.equal(plain.compute_buffer, masked.compute_buffer)
    assert masked.modifier.last.tolist() == [1.0] * 6


@pytest.mark.full
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", [name for name in LIBRARIES if name not in AVERAGING])
def test_masks_scale_what_the_base_moves(name, after):
    """The library's state is the base's; alignments are cosines with its own momentum, before or after the step."""
    base, masked = made(name, masked=True), made(name, masked=True)
    options = MagmaOptions(momentum_after=after, temperature=0.5, decay=0.5)
    masked.modifier = Magma(masked.layout, [0, 0, 1, 2, 3, NEVER], seed=7, options=options)
    expected = [options.start] * 6
    lengths = []
    for step in range(6):
        momenta = [view.clone() for view in base.layout.views(base.momentum)]
        before, way = masked.param.clone(), base.param.clone()
        take(base, step, decay=0.0)
        take(masked, step, decay=0.0)
        if after:
            momenta = [view.clone() for view in base.layout.views(base.momentum)]
        for index, (momentum, gradient) in enumerate(zip(momenta, gradients(step), strict=True)):
            norms = float(momentum.norm() * gradient.norm())
            cosine = float((momentum * gradient).sum()) / norms if norms else 0.0
            expected[index] = 0.5 * expected[index] + 0.5 / (1 + math.exp(-cosine / 0.5))
        assert masked.modifier.alignment[:5].tolist() == pytest.approx(expected[:5], rel=1e-4)
        wanted, found = flat_tensors(base, NAMES), flat_tensors(masked, NAMES)
        del found["alignment"]
        assert same(wanted, found)
        lengths.append(masked.modifier.last.tolist())
        views = (one.layout.views(flat) for one, flat in (
            (base, base.param - way), (masked, masked.param - before),
        ))  # fmt: skip
        for length, moved, scaled in zip(lengths[-1], *views, strict=True):
            torch.testing.assert_close(scaled, moved * length, rtol=1e-3, atol=1e-6)
    assert {length == 0.0 for row in lengths for length in row} == {True, False}
    assert all(row[5] == 1.0 for row in lengths)
    assert all((row[0] == 0.0) == (row[1] == 0.0) for row in lengths)


def test_masked_schedule_free_training_is_the_paper_s_with_shorter_steps_of_z():
    """In NumPy: z goes the way that the mask says, the average of all z goes on, and gradients are taken between."""
    one = made("schedule_free", masked=True)
    one.modifier = Magma(one.layout, range(6), seed=5)
    exact = [
        NumpyScheduleFree(view.numpy().copy(), decay=0.1 if segment.decay else 0.0)
        for segment, view in zip(SEGMENTS, one.layout.views(one.param), strict=True)
    ]
    means = [np.zeros((segment.rows, segment.columns)) for segment in SEGMENTS]
    aligned, seen = [0.5] * 6, set()
    for step in range(STEPS):
        rate = 1e-2 * min(1.0, (step + 1) / 10)
        take(one, step, rate)
        ways = one.modifier.last.tolist()
        for index, (each, gradient) in enumerate(zip(exact, gradients(step), strict=True)):
            g = gradient.double().numpy()
            norms = np.linalg.norm(means[index]) * np.linalg.norm(g)
            cosine = (means[index] * g).sum() / norms if norms else 0.0
            aligned[index] = 0.9 * aligned[index] + 0.1 / (1 + math.exp(-cosine / 2))
            assert ways[index] == 0.0 or ways[index] == pytest.approx(aligned[index], rel=1e-5)
            seen.add(ways[index] == 0.0)
            means[index] = 0.9 * means[index] + 0.1 * g
            each.step(g, rate, way=ways[index])
    assert seen == {True, False}
    for view, each in zip(one.layout.views(one.param), exact, strict=True):
        np.testing.assert_allclose(view, each.y, rtol=0, atol=2e-6)
    with one.averaged():
        for view, each in zip(one.layout.views(one.param), exact, strict=True):
            np.testing.assert_allclose(view, each.x, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["adamw", *LIBRARIES])
def test_lora_plus_makes_b_learn_faster(name, device):
    moved = []
    for ratio in (1.0, 4.0):
        if name == "adamw":
            layout = FlatLayout(SEGMENTS, device)
            one = op.AdamW(layout, torch.zeros(layout.copy_end, device=device))
            one.rates = torch.tensor([1.0, ratio] * 3, device=device) if ratio != 1.0 else None
        else:
            one = made(name, device, ratio=ratio, weight_decay=0.0)
        start = one.param.clone()
        take(one, 0, 1e-3, decay=0.0)
        moved.append(one.layout.views(one.param - start))
    for index, (usual, faster) in enumerate(zip(*moved, strict=True)):
        torch.testing.assert_close(faster, usual * (4.0 if index % 2 else 1.0), rtol=1e-3, atol=1e-6)
        assert usual.any()


@pytest.mark.parametrize("name", LIBRARIES)
def test_only_some_segments_decay(name):
    one = made(name, weight_decay=0.5)
    before = [view.clone() for view in one.layout.views(one.param)]
    control(one, 0.1, decay=0.5)
    one.step()  # without a gradient nothing else moves
    for segment, view, old in zip(SEGMENTS, one.layout.views(one.param), before, strict=True):
        torch.testing.assert_close(view, old * (0.95 if segment.decay else 1.0), rtol=1e-5, atol=1e-7)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_resumed_step_is_the_uninterrupted_one_to_the_bit(name, masked, device):
    """From plain tensors, in the middle of warmup, with masks; into state that has gone on meanwhile too."""
    one = made(name, device, loss_scale=4.0, masked=masked)
    resumed, fresh = made(name, device, masked=masked), made(name, device, masked=masked)
    if masked:
        for each in (one, resumed, fresh):
            each.modifier = Magma(each.layout, range(6), seed=2**40)
    for step in range(3):
        take(one, step, scale=4.0)
    take(resumed, 17)
    saved = flat_tensors(one, NAMES)
    for each in (resumed, fresh):
        each.param.copy_(one.param)
        restore_flat(each, NAMES, saved)
    for step in range(3, 9):
        for each in (one, resumed, fresh):
            take(each, step, scale=4.0)
    for each in (resumed, fresh):
        assert same(everything(one), everything(each))


def test_another_adapter_s_state_is_refused():
    one = made("adamw8bit")
    take(one, 0)
    saved = one.library_tensors()
    del saved[next(name for name in saved if name.endswith("/state1"))]
    with pytest.raises(KeyError):
        made("adamw8bit").restore_library(saved)


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
def test_8_bit_steps_on_a_stream_of_ours_come_after_what_is_queued_there(masked):
    """bitsandbytes launches on the usual stream: unordered, it would read gradients that are not clipped yet."""
    layout = FlatLayout([Segment(4096, 8192, 0, 8192)], "cuda")
    section = TrainSection(optimizer="adamw8bit", learning_rate=1e-3)
    busy = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    moved = []
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        one = make_library_step(section, TrainedSegments(layout, None, ["layer.0.A"], [1.0]), masked=masked)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for step in range(3):
                control(one, 1e-3, max_norm=1.0)
                for _ in range(8):
                    torch.mm(busy, busy)
                one.grad.copy_(torch.sin(torch.arange(layout.total, device="cuda") * (step + 1.0)))
                one.step()
        torch.cuda.synchronize()
        moved.append(one.param.clone())
    assert moved[0].any()
    assert torch.equal(*moved)
