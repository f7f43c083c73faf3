"""The optimizer step against torch.optim.AdamW; skipped steps; loss scaling; compute copies."""

import math
import os

import pytest
import torch

from burnish_kernels.adamw import op
from burnish_kernels.adamw.op import FlatLayout, Segment, StepSettings

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SEGMENTS = (
    Segment(4, 90, 16, 96, 1.0, decay=True),
    Segment(70, 4, 512, 8, 2.0, decay=True),
    Segment(1, 1100, 4096, 1100, 0.5, decay=False),
)
STATE = ("param", "exp_avg", "exp_avg_sq", "compute_buffer")


def optimizer(device, *, segments=SEGMENTS, dtype=torch.float32, loss_scale=1.0, control=None):
    layout = FlatLayout(segments, device)
    made = op.AdamW(layout, torch.zeros(layout.copy_end, dtype=dtype, device=device), loss_scale=loss_scale)
    generator = torch.Generator().manual_seed(0)
    for view in layout.views(made.param):
        view.copy_(torch.randn(view.shape, generator=generator))
    made.write_compute_copies()
    made.set_control(control or StepSettings(1e-2))
    return made


def fill_gradient(made, seed, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    for view in made.layout.views(made.grad):
        view.copy_(size * torch.randn(view.shape, generator=generator))


def state(made):
    return {name: getattr(made, name).clone() for name in STATE}


@pytest.mark.full
@pytest.mark.parametrize("max_norm", [0.0, 5.0])
def test_many_steps_are_those_of_torch(device, max_norm):
    steps = 12 if INTERPRETED else 50
    made = optimizer(device)
    leaves = [view.clone().requires_grad_() for view in made.layout.views(made.param)]
    groups = [{"params": leaves[:2], "weight_decay": 0.1}, {"params": leaves[2:], "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-7, foreach=True)
    for step in range(steps):
        rate = 1e-2 * (1 - step / 60)
        made.set_control(StepSettings(rate, beta2=0.95, eps=1e-7, weight_decay=0.1, max_grad_norm=max_norm))
        fill_gradient(made, step, size=1.0 + step % 7)
        for leaf, view in zip(leaves, made.layout.views(made.grad), strict=True):
            leaf.grad = view.clone()
        norm = torch.nn.utils.clip_grad_norm_(leaves, max_norm or math.inf)
        for group in theirs.param_groups:
            group["lr"] = rate
        theirs.step()
        made.step()
        assert float(made.status[op.GRADIENT_NORM]) == pytest.approx(float(norm), rel=1e-6)
    for leaf, view in zip(leaves, made.layout.views(made.param), strict=True):
        torch.testing.assert_close(view, leaf.detach(), rtol=2e-6, atol=2e-6)
    assert made.counters.tolist() == [steps, steps, 0]


def test_bias_correction_stays_exact_after_thousands_of_steps(device):
    made = optimizer(device, segments=[Segment(1, 1, 0, 1)])
    theirs = torch.optim.AdamW([leaf := torch.zeros(1, requires_grad=True)], lr=1e-3, weight_decay=0.0)
    made.param.zero_()
    for count in (9, 9_999):
        made.counters[op.STEP] = count
        leaf.grad = torch.tensor([0.5])
        theirs.step()
        theirs.state[leaf]["step"].fill_(count + 1)  # of the step to come: torch adds 1 before it uses it
        leaf.data.zero_()
        for name in ("exp_avg", "exp_avg_sq"):
            getattr(made, name)[0] = theirs.state[leaf][name][0]
        theirs.state[leaf]["step"].fill_(count)
        made.param.zero_()
        made.set_control(StepSettings(1e-3))
        made.grad[0] = leaf.grad[0] = 0.25
        theirs.step()
        made.step()
        assert float(made.param[0]) == pytest.approx(leaf.item(), rel=3e-7)


@pytest.mark.full
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_skipped_step_changes_nothing_but_counters(device, bad):
    made = optimizer(device, control=StepSettings(1e-2, weight_decay=0.1, max_grad_norm=1.0))
    fill_gradient(made, 0)
    made.step()
    before = state(made)
    fill_gradient(made, 1)
    made.layout.views(made.grad)[2][0, 1050] = bad
    made.step()
    assert all(torch.equal(before[name], getattr(made, name)) for name in STATE)
    assert made.counters.tolist() == [1, 0, 1]
    assert not made.grad.any()
    assert made.status[op.TAKEN] == 0.0
    assert made.status[op.CLIP_FACTOR] == 0.0
    assert not made.status[op.GRADIENT_NORM].isfinite()
    fill_gradient(made, 2)
    made.step()
    assert made.counters.tolist() == [2, 1, 1]
    assert made.param.isfinite().all()


@pytest.mark.full
def test_loss_scale_halves_and_doubles(device):
    made = optimizer(device, loss_scale=8.0, control=StepSettings(1e-3, growth_interval=2))
    for step, (good, expected) in enumerate(
        [(True, 8.0), (True, 16.0), (True, 16.0), (False, 8.0), (False, 4.0), (True, 4.0), (True, 8.0)]
    ):
        used = float(made.loss_scale)
        fill_gradient(made, step)
        if not good:
            made.grad[0] = math.inf
        made.step()
        assert float(made.status[op.LOSS_SCALE]) == used
        assert float(made.loss_scale) == expected
    assert made.counters.tolist() == [5, 0, 2]


@pytest.mark.full
def test_loss_scale_has_bounds(device):
    small = optimizer(device, loss_scale=1.0, control=StepSettings(1e-3, growth_interval=1))
    small.grad[0] = math.nan
    small.step()
    assert float(small.loss_scale) == 1.0
    large = optimizer(device, loss_scale=2.0**24, control=StepSettings(1e-3, growth_interval=1))
    large.step()
    assert float(large.loss_scale) == 2.0**24


@pytest.mark.full
def test_loss_scale_is_constant_without_growth_interval(device):
    made = optimizer(device, loss_scale=4.0)
    made.grad[0] = math.inf
    made.step()
    made.step()
    assert float(made.loss_scale) == 4.0


@pytest.mark.full
def test_a_scaled_gradient_gives_the_same_bits(device):
    """A power of two changes no bits, in norm, clipping and update alike."""
    control = StepSettings(1e-2, max_grad_norm=1.0)
    plain, scaled = optimizer(device, control=control), optimizer(device, control=control, loss_scale=1024.0)
    fill_gradient(plain, 3)
    fill_gradient(scaled, 3, size=1024.0)
    plain.step()
    scaled.step()
    assert all(torch.equal(getattr(plain, name), getattr(scaled, name)) for name in STATE)
    assert plain.status[:3].tolist() == scaled.status[:3].tolist()


@pytest.mark.full
def test_the_same_gradients_give_the_same_bits(device):
    runs = [optimizer(device, control=StepSettings(1e-2, max_grad_norm=1.0)) for _ in range(2)]
    for made in runs:
        for step in range(3):
            fill_gradient(made, step)
            made.step()
    assert all(torch.equal(getattr(runs[0], name), getattr(runs[1], name)) for name in STATE)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_compute_copies_are_the_scaled_parameters_rounded_and_nothing_else_is_written(device, dtype):
    if INTERPRETED and device == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter cuts bf16 off instead of rounding")
    made = optimizer(device, dtype=dtype)
    made.compute_buffer.fill_(7.0)
    fill_gradient(made, 0)
    made.step()
    expected = torch.full_like(made.compute_buffer, 7.0)
    for segment, view, compute_copy in zip(
        SEGMENTS, made.layout.views(made.param), made.layout.compute_copies(expected), strict=True
    ):
        compute_copy.copy_((view * segment.copy_scale).to(dtype))
    assert torch.equal(made.compute_buffer, expected)
    made.compute_buffer.fill_(7.0)
    made.write_compute_copies()
    assert torch.equal(made.compute_buffer, expected)


@pytest.mark.full
def test_no_gradient_and_no_eps_change_nothing(device):
    """As LoRA's A in the first step, where B is 0; torch would make it NaN."""
    made = optimizer(device, control=StepSettings(1e-2, eps=0.0))
    before = made.param.clone()
    made.step()
    assert torch.equal(made.param, before)


@pytest.mark.gpu
def test_a_captured_step_reads_its_settings_anew():
    captured, eager = optimizer("cuda"), optimizer("cuda")
    captured.step()
    eager.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for step in range(20):  # more than there is pinned memory for: turns are reused
        for made in (captured, eager):
            made.set_control(StepSettings(1e-3 * (step + 1), max_grad_norm=1.0))
            fill_gradient(made, step)
        graph.replay()
        eager.step()
    assert all(torch.equal(getattr(captured, name), getattr(eager, name)) for name in STATE)
    assert captured.counters.tolist() == [21, 21, 0]


class Lengths:
    """A modifier with these lengths for every step."""

    def __init__(self, device, *lengths):
        self.lengths = torch.tensor(lengths, device=device)

    def step_scale(self, optimizer, factors):
        return self.lengths


@pytest.mark.full
def test_each_segment_goes_as_far_as_its_modifier_says(device):
    control = StepSettings(1e-2, weight_decay=0.1)
    plain, made = optimizer(device, control=control), optimizer(device, control=control)
    made.modifier = Lengths(device, 0.0, 1.0, 2.0)
    before = [view.clone() for view in made.layout.views(made.param)]
    for each in (plain, made):
        fill_gradient(each, 1)
        each.step()
    found, whole = (each.layout.views(each.param) for each in (made, plain))
    assert torch.equal(found[0], before[0])
    assert torch.equal(found[1], whole[1])
    torch.testing.assert_close(found[2] - before[2], 2 * (whole[2] - before[2]), rtol=1e-4, atol=1e-6)
    assert torch.equal(made.exp_avg, plain.exp_avg)
    assert torch.equal(made.exp_avg_sq, plain.exp_avg_sq)


@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1, 1, 1)], ids=["too few", "integers"])
def test_lengths_that_do_not_fit_are_named(lengths):
    made = optimizer("cpu")
    made.modifier = Lengths("cpu", *lengths)
    with pytest.raises(ValueError, match=r"expected \[3\] torch.float32"):
        made.step()


def test_layout_pads_to_blocks_and_views_share_memory():
    layout = FlatLayout(SEGMENTS, "cpu")
    assert layout.starts == (0, 1024, 2048)
    assert layout.total == 4096
    assert layout.tables.block_segments.tolist() == [0, 1, 2, 2]
    assert layout.copy_end == 4096 + 1100
    assert layout.vector == 2
    flat = torch.zeros(layout.total)
    layout.views(flat)[1][0, 3] = 5.0
    assert flat[1027] == 5.0


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([], "nothing to optimize"),
        ([Segment(0, 4, 0, 4)], "elements"),
        ([Segment(1 << 16, 1 << 16, 0, 1 << 16)], "elements"),
        ([Segment(2, 4, -1, 4)], "start"),
        ([Segment(2, 4, 0, 3)], "row every"),
    ],
)
def test_impossible_layouts_are_named(segments, words):
    with pytest.raises(ValueError, match=words):
        FlatLayout(segments, "cpu")


@pytest.mark.parametrize(
    ("compute_buffer", "loss_scale", "words"),
    [
        (torch.zeros(2, 4000), 1.0, "one-dimensional"),
        (torch.zeros(9000, dtype=torch.float64), 1.0, "fp32, fp16 or bf16"),
        (torch.zeros(5195), 1.0, "compute copies end at 5196"),
        (torch.zeros(9000), 0.5, "loss scale"),
    ],
)
def test_impossible_arenas_are_named(compute_buffer, loss_scale, words):
    with pytest.raises(ValueError, match=words):
        op.AdamW(FlatLayout(SEGMENTS, "cpu"), compute_buffer, loss_scale=loss_scale)


def test_buffers_of_another_size_are_named():
    made = optimizer("cpu")
    with pytest.raises(ValueError, match="flat buffers"):
        op.gradient_norm(made.layout, torch.zeros(8), torch.zeros(4))
    with pytest.raises(ValueError, match="expected"):
        op.gradient_norm(made.layout, made.grad, torch.zeros(5))
    with pytest.raises(ValueError, match="flat buffer"):
        made.layout.views(torch.zeros(8))
