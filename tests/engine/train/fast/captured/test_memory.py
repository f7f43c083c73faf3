"""Device memory of captured steps: every bucket and evaluation do with that of the largest pass."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from engine.train.fast.captured.gpu_runs import gpu_trainer

from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.fast.fast_trainer import FastTrainer

from support.models import parity
from support.runs.steps import PASSES, figures, prefetcher, train


def release_all_unused() -> None:
    """The allocator's, and cuBLAS's workspaces: a new trainer's stream may be that of another one, long gone."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_the_first_pass_leaves_nothing_in_the_way_of_others(adapted_llama, monkeypatch):
    """Not even cuBLAS's workspace, which is taken before it."""
    release_all_unused()
    trained, before = gpu_trainer(adapted_llama, dtype=torch.bfloat16), []

    def first(self, *rest):
        before.append(torch.cuda.memory_allocated())
        return make(self, *rest)

    make = FastTrainer._pass
    monkeypatch.setattr(FastTrainer, "_pass", first)
    with prefetcher(trained, PASSES[:1]) as ring:
        trained.step(ring)
        list(trained.results(wait=True))
    assert torch.cuda.memory_allocated() - before[0] < 2**20


@pytest.mark.gpu
def test_further_buckets_take_no_memory_of_their_own(adapted_llama):
    """Neither their first passes, which are eager, nor their graphs: the largest bucket's memory does for all."""
    passes = {rows: parity.micro_batch((128,) * (rows // 128)) for rows in (4096, 8192, 16384)}
    largest, medium, small = 16384, 8192, 4096
    peaks = []
    for order in ([largest] * 4, [largest, largest, medium, medium, small, small, medium, largest, small]):
        release_all_unused()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, rows=sorted(passes))
        train(trained, [passes[rows] for rows in order])
        assert {layout.capacity for layout in trained.ran} == set(order)
        assert all(trained.steps[layout].captured for layout in trained.ran)
        peaks.append(torch.cuda.max_memory_reserved() - before)
        del trained
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.gpu
def test_evaluation_takes_the_passes_memory(adapted_llama):
    """And leaves training as it was: the same bits as without it, and hardly a byte more."""
    batch = parity.micro_batch((128,) * 64)
    held_out = [Document(batch.input_ids[a:b].astype(np.int32), np.ones(b - a, dtype=bool), 0, "held out")
                for a, b in pairwise(batch.boundaries)]  # fmt: skip
    found = []
    for evaluates in (False, True):
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, rows=(8192,), head_rows=8192)
        layout = next(iter(trained.steps))
        with prefetcher(trained, [batch] * 6) as ring:
            for _ in range(3):
                trained.step(ring)
            list(trained.results(wait=True))
            reserved = torch.cuda.memory_reserved()
            if evaluates:
                for _ in range(3):
                    with trained.on_stream(), trained.idle_memory():
                        parity.held_out_loss(trained.model.loaded.decoder, held_out, 8192, layout)
                assert torch.cuda.memory_reserved() <= reserved + (8 << 20)
            for _ in range(3):
                trained.step(ring)
            found.append(figures(trained.results(wait=True)))
    assert found[0] == found[1]
