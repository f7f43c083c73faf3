"""Magma against a short NumPy implementation; what it must not change; draws."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from burnish_kernels.adamw import op as adamw
from burnish_kernels.adamw.op import FlatLayout, Segment, StepSettings
from burnish_kernels.magma.op import NEVER, Magma, MagmaOptions

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SEGMENTS = (
    Segment(4, 90, 16, 96, 1.0, decay=True),
    Segment(70, 4, 512, 8, 2.0, decay=True),
    Segment(3, 1100, 4096, 1100, 0.5, decay=True),
    Segment(1, 1100, 8192, 1100, 1.0, decay=False),
)
SHORT = tuple(Segment(1, 4, 16 * index, 4) for index in range(4))
"""One block each: what is drawn for a segment does not depend on its size."""
DRAWS = (0, 0, 1, NEVER)
SEED = 123456789012
BETA1, BETA2, EPS, DECAY = 0.9, 0.95, 1e-8, 0.1


def optimizer(device, options=None, *, segments=SEGMENTS, draws=DRAWS, seed=SEED, dtype=torch.float32, masked=True):
    layout = FlatLayout(segments, device)
    made = adamw.AdamW(layout, torch.zeros(layout.copy_end, dtype=dtype, device=device))
    generator = torch.Generator().manual_seed(0)
    for view in layout.views(made.param):
        view.copy_(torch.randn(view.shape, generator=generator))
    made.write_compute_copies()
    made.set_control(StepSettings(1e-2, BETA1, BETA2, EPS, DECAY))
    if masked:
        made.modifier = Magma(layout, draws, seed, options)
    return made


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(s.rows, s.columns, generator=generator) + 0.1 * (step % 5) for s in SEGMENTS]


def take(made, step, scale=1.0):
    for view, gradient in zip(made.layout.views(made.grad), gradients(step), strict=True):
        view.copy_(scale * gradient)
    made.step()


def philox_word(seed, counter):
    """The first word of Philox4x32-10, from the paper, with Python's integers."""
    words, key = list(counter), [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        low, high = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [(high >> 32) ^ words[1] ^ key[0], high & 0xFFFFFFFF, (low >> 32) ^ words[3] ^ key[1], low & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0]


class Numpy:
    """AdamW with Magma or SkipUpdate, after the paper, in double precision."""

    def __init__(self, start, options):
        self.param = [one.double().cpu().numpy().copy() for one in start]
        self.first, self.second = ([np.zeros_like(one) for one in self.param] for _ in range(2))
        self.s, self.options, self.step = [options.start] * len(self.param), options, 0

    def take(self, gradients, rate=1e-2):
        self.step += 1
        for index, gradient in enumerate(gradients):
            g, m = gradient.double().numpy(), self.first[index].copy()
            self.first[index] = BETA1 * m + (1 - BETA1) * g
            self.second[index] = BETA2 * self.second[index] + (1 - BETA2) * g * g
            mean = self.first[index] / (1 - BETA1**self.step)
            root = np.sqrt(self.second[index] / (1 - BETA2**self.step)) + EPS
            way = rate * (mean / root + (DECAY if SEGMENTS[index].decay else 0.0) * self.param[index])
            if DRAWS[index] != NEVER:
                seen = self.first[index] if self.options.momentum_after else m
                norms = np.linalg.norm(seen) * np.linalg.norm(g)
                cosine = float((seen * g).sum() / norms) if norms else 0.0
                fresh = 1 / (1 + np.exp(-cosine / self.options.temperature))
                self.s[index] = self.options.decay * self.s[index] + (1 - self.options.decay) * fresh
                drawn = (philox_word(SEED, (self.step, DRAWS[index], 0x6D61676D, 0)) >> 1) / 2**31
                length = 1 / self.options.probability if self.options.skip else self.s[index]
                way = way * length * self.options.rate * (drawn < self.options.probability)
            self.param[index] = self.param[index] - way


@pytest.mark.full
@pytest.mark.parametrize("options", [
    MagmaOptions(), MagmaOptions(momentum_after=True, temperature=0.5), MagmaOptions(skip=True),
    MagmaOptions(probability=0.3, rate=3.0),
], ids=["usual", "after", "skip", "rate"])  # fmt: skip
def test_many_steps_are_those_of_the_paper(device, options):
    made = optimizer(device, options)
    start = [view.clone() for view in made.layout.views(made.param)]
    ours = Numpy(start, options)
    for step in range(10 if INTERPRETED else 50):
        take(made, step)
        ours.take(gradients(step))
        for found, wanted, before in zip(made.layout.views(made.param), ours.param, start, strict=True):
            began = before.cpu().double().numpy()
            change, exact = found.cpu().double().numpy() - began, wanted - began
            assert np.linalg.norm(change - exact) <= 2e-5 * np.linalg.norm(exact) + 1e-6, step
    if not options.skip:
        assert made.modifier.alignment.tolist() == pytest.approx(ours.s, rel=1e-5)


@pytest.mark.full
def test_always_and_all_the_way_are_the_base_to_the_bit(device):
    options = MagmaOptions(probability=1.0, start=1.0, decay=1.0)
    plain, masked = optimizer(device, masked=False), optimizer(device, options)
    for step in range(6):
        take(plain, step)
        take(masked, step)
        for name in ("param", "exp_avg", "exp_avg_sq", "compute_buffer"):
            assert torch.equal(getattr(plain, name), getattr(masked, name)), name
    assert masked.modifier.last.tolist() == [1.0] * 4


@pytest.mark.full
def test_moments_are_the_base_s_whatever_is_masked(device):
    plain, masked = optimizer(device, masked=False), optimizer(device)
    for step in range(6):
        take(plain, step)
        before = masked.param.clone()
        take(masked, step)
        assert torch.equal(plain.exp_avg, masked.exp_avg)
        assert torch.equal(plain.exp_avg_sq, masked.exp_avg_sq)
        for view, old, length in zip(
            masked.layout.views(masked.param), masked.layout.views(before), masked.modifier.last.tolist(), strict=True
        ):
            assert torch.equal(view, old) == (length == 0.0)


@pytest.mark.full
def test_a_resumed_run_goes_the_same_way(device):
    whole, first = optimizer(device), optimizer(device)
    for step in range(4):
        take(whole, step)
        take(first, step)
    resumed = optimizer(device)
    for name in ("param", "exp_avg", "exp_avg_sq", "counters"):
        getattr(resumed, name).copy_(getattr(first, name))
    resumed.modifier.alignment.copy_(first.modifier.alignment)
    for step in range(4, 10):
        take(whole, step)
        take(resumed, step)
        assert torch.equal(whole.modifier.last, resumed.modifier.last)
    assert torch.equal(whole.param, resumed.param)


@pytest.mark.full
def test_a_step_that_is_skipped_changes_nothing(device):
    made = optimizer(device)
    take(made, 0)
    before = made.modifier.alignment.clone(), made.param.clone(), made.counters[0].clone()
    take(made, 1, scale=float("inf"))
    after = made.modifier.alignment, made.param, made.counters[0]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_gradient_of_zeros_is_aligned_with_nothing(device):
    made = optimizer(device, MagmaOptions(decay=0.0, start=1.0))
    take(made, 0, scale=0.0)
    assert made.modifier.alignment[:3].tolist() == [0.5] * 3


@pytest.mark.full
def test_draws_are_even_and_their_own(device):
    """About half of all go; those that share a draw go together; seeds and blocks differ."""
    steps = 20 if INTERPRETED else 400
    lengths = []
    for seed in (1, 2):
        made = optimizer(device, MagmaOptions(start=1.0, decay=1.0), segments=SHORT, seed=seed)
        gone = []
        for _ in range(steps):
            made.grad.fill_(1.0)
            made.step()
            gone.append(made.modifier.last.cpu().clone())
        lengths.append(torch.stack(gone) > 0)
    for one in lengths:
        assert torch.equal(one[:, 0], one[:, 1])
        assert one[:, 3].all()
        assert 0.3 < one[:, [0, 2]].float().mean() < 0.7
        assert not torch.equal(one[:, 0], one[:, 2])
    assert not torch.equal(lengths[0][:, 0], lengths[1][:, 0])


_A_RANK = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
import test_op
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=ranks)
torch.manual_seed(rank)  # what ranks have of their own
made, ways = test_op.optimizer("cpu"), []
for step in range(12):
    torch.rand(rank + 1)
    for view, full in zip(made.layout.views(made.grad), test_op.gradients(step), strict=True):
        share = full * (2.0 if rank else 0.0)  # other rows than its neighbor's
        torch.distributed.all_reduce(share)
        view.copy_(share / ranks)
    made.step()
    ways.append(made.modifier.last.clone())
torch.save({"ways": torch.stack(ways), "param": made.param}, sys.argv[3] + str(rank))
"""


@pytest.mark.full
def test_every_rank_lets_the_same_sit_out(tmp_path):
    """Two processes that share gradients, as data-parallel ranks do, and have random states of their own."""
    command = [
        sys.executable,
        "-c",
        _A_RANK,
        str(Path(__file__).parent),
        str(tmp_path / "meet"),
        str(tmp_path / "rank"),
    ]
    ranks = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    assert [process.wait(timeout=120) for process in ranks] == [0, 0]
    one, other = (torch.load(tmp_path / f"rank{rank}", weights_only=True) for rank in range(2))
    assert torch.equal(one["ways"], other["ways"])
    assert torch.equal(one["param"], other["param"])
    alone = optimizer("cpu")
    for step in range(12):
        take(alone, step)
    assert torch.equal(alone.param, one["param"])
    assert (one["ways"] == 0.0).any()


@pytest.mark.gpu
def test_captured_steps_are_eager_ones():
    eager, captured = optimizer("cuda", dtype=torch.bfloat16), optimizer("cuda", dtype=torch.bfloat16)
    for made in (eager, captured):
        take(made, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for step in range(1, 12):
        take(eager, step)
        for view, gradient in zip(captured.layout.views(captured.grad), gradients(step), strict=True):
            view.copy_(gradient)
        graph.replay()
        assert torch.equal(eager.param, captured.param)
        assert torch.equal(eager.modifier.last, captured.modifier.last)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("probability", 0.0), ("probability", 1e-12), ("probability", 1.1), ("temperature", 0.0),
        ("temperature", 1e-300), ("temperature", math.inf), ("decay", 1.5), ("decay", math.nan), ("start", 0.0),
        ("rate", -1.0), ("rate", math.inf),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(name, value):
    with pytest.raises(ValueError, match=f"the {name} must be .*, not {value}"):
        optimizer("cpu", MagmaOptions(**{name: value}))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("draws", [(), (0, 1), (0, 1, 2, NEVER - 1)])
def test_every_segment_needs_a_draw(draws):
    with pytest.raises(ValueError, match="4 segments"):
        optimizer("cpu", draws=draws)
