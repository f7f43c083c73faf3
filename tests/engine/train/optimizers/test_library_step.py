"""The fast engine's step with optimizers of libraries: masks, skipped steps, loss scales."""

import math

import pytest
import torch
from engine.train.optimizers.forms import NAMES, everything, gradients, made, same, take

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.flat_step import flat_tensors, make_flat_step, make_library_step
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw import op
from burnish_kernels.adamw.op import FlatLayout, Segment
from burnish_kernels.magma.op import NEVER, Magma, MagmaOptions

from support.runs.shelf import AVERAGING, OPTIMIZERS

LIBRARIES = OPTIMIZERS[1:]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_skipped_step_advances_nothing_and_halves_the_scale(name, bad, device):
    """The same bits as a run without scale that never had it: a power of two changes none."""
    one, other = (made(name, device, masked=True, loss_scale=scale) for scale in (2.0**14, 1.0))
    for each in (one, other):
        each.modifier = Magma(each.layout, range(6), seed=3)
    for step in range(7):
        if step == 3:
            before = everything(one)
            take(one, step, scale=bad, growth=2000, max_norm=1.0)
            after = everything(one)
            assert after.pop("counters").tolist() == [3, 0, 1]
            assert (before.pop("loss_scale"), after.pop("loss_scale")) == (2.0**14, 2.0**13)
            before.pop("counters")
            assert same(before, after)
            assert not one.grad.any()
            assert one.status[op.TAKEN] == 0.0
        take(one, step, scale=float(one.loss_scale), growth=2000, max_norm=1.0)
        take(other, step, max_norm=1.0)
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
                one.set_control(op.StepSettings(1e-3, weight_decay=0.1, max_grad_norm=1.0, growth_interval=0))
                for _ in range(8):
                    torch.mm(busy, busy)
                one.grad.copy_(torch.sin(torch.arange(layout.total, device="cuda") * (step + 1.0)))
                one.step()
        torch.cuda.synchronize()
        moved.append(one.param.clone())
    assert moved[0].any()
    assert torch.equal(*moved)
