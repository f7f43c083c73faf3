"""Device memory of captured steps: every bucket and evaluation do with that of the largest pass."""

import gc
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engine.train.fast.captured.gpu_runs import gpu_trainer

from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.paged.room import IdleMemory
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest
from burnish_engine.train.fast.fast_trainer import FastTrainer

from support.models import parity
from support.runs.steps import PASSES, figures, prefetcher, train, trainer


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


@pytest.mark.gpu
def test_replies_lie_in_the_passes_memory(adapted_llama):
    """Captured ones too; training is left as it was, and takes hardly a byte more afterwards."""
    batch = parity.micro_batch((128,) * 64)
    found = []
    requests = [ReplyRequest(list(range(3, 60 + row)), Sampling(80)) for row in range(20)]
    for replies in (False, True):
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, rows=(8192,), head_rows=8192)
        with prefetcher(trained, [batch] * 6) as ring:
            for _ in range(3):
                trained.step(ring)
            list(trained.results(wait=True))
            reserved = torch.cuda.memory_reserved()
            if replies:
                assert sum(trained.idle_blocks()) > 1 << 24
                idle = IdleMemory(trained.idle_blocks, trained.idle_memory)
                generator = DecoderGenerator(trained.model.loaded.decoder, idle=idle)
                for _ in range(3):
                    with trained.on_stream():
                        made = sum(len(piece.tokens) for piece in generator.replies(requests, set(), 64))
                    assert made == 20 * 80
                gc.collect()
                torch.cuda.empty_cache()
                assert torch.cuda.memory_reserved() <= reserved + (64 << 20), "cuBLAS keeps memory for a stream"
            for _ in range(3):
                trained.step(ring)
            found.append(figures(trained.results(wait=True)))
    assert found[0] == found[1]


def test_idle_blocks_are_the_free_ones_of_the_graphs_pool(adapted_llama, monkeypatch):
    trained = trainer(*adapted_llama[:2])
    assert trained.idle_blocks() == []
    blocks = [
        {"size": 7, "state": "inactive"},
        {"size": 5, "state": "active_allocated"},
        {"size": 3, "state": "inactive"},
    ]
    segments = [
        {"segment_pool_id": pool, "segment_type": kind, "blocks": blocks}
        for pool, kind in (((0, 4), "large"), ((0, 4), "small"), ((0, 0), "large"))
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(trained, "_pool", (0, 4))
    assert trained.idle_blocks() == [], "nothing is captured"
    monkeypatch.setattr(trained, "steps", {1: SimpleNamespace(captured=True)})
    assert trained.idle_blocks() == [7, 3]
