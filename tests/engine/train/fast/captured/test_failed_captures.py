"""Captures that fail: the reason is told, training continues eagerly, and no memory is lost."""

import gc
from contextlib import nullcontext

import pytest
import torch
from engine.train.fast.captured.gpu_runs import gpu_trainer

from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep

from support.models import parity
from support.runs.steps import PASSES, train, trainer


@pytest.fixture
def failing(adapted_llama, monkeypatch):
    """A trainer whose captures fail, and the bucket and mode of each that it tries."""
    trained, tries = trainer(*adapted_llama[:2]), []
    trained.wants_graphs, trained._pool = True, (0, 1)

    def capture(self, pool, stream, *, mode, **_kind):
        tries.append((self.layout.capacity, mode))
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")

    monkeypatch.setattr(MicroBatchStep, "capture", capture)
    monkeypatch.setattr(trained, "_capture", lambda program, **_kind: _captured_without_a_gpu(trained, program))
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda _pool, _device: nullcontext())
    return trained, tries


@pytest.mark.full
def test_a_failed_capture_is_told_once_and_training_goes_on(adapted_llama, failing):
    trained, tries = failing
    results, param = train(trained, [PASSES[0]] * 4)
    assert tries == [(64, "global")]  # at the second pass of this bucket, and never again
    assert "(CUDA error: operation not permitted when stream is capturing)" in trained.problem
    assert "Compile with" not in trained.problem
    eager, other = train(trainer(*adapted_llama[:2]), [PASSES[0]] * 4)
    assert [result.loss for result in results] == [result.loss for result in eager]
    assert torch.equal(param, other)


def test_the_threads_of_a_process_group_do_not_spoil_captures(failing, monkeypatch):
    """They live as long as the group, so also while the leader makes a dry run, which it exchanges nothing in."""
    trained, tries = failing
    assert trained.exchange is None
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    train(trained, [PASSES[0]] * 4)
    assert [mode for _, mode in tries] == ["thread_local"]


def _captured_without_a_gpu(trained, program):
    trained.stream = object()
    try:
        FastTrainer._capture(trained, program, estimates_kl=False)
    finally:
        trained.stream = None


@pytest.mark.parametrize("error", [RuntimeError(), RuntimeError("not permitted when stream is capturing\nCompile")])
def test_any_failure_of_a_capture_has_words(adapted_llama, monkeypatch, error):
    trained = trainer(*adapted_llama[:2])
    trained.wants_graphs, trained._pool = True, (0, 1)

    def capture(*_, **_kind):
        raise error

    monkeypatch.setattr(MicroBatchStep, "capture", capture)
    _captured_without_a_gpu(trained, next(iter(trained.steps.values())))
    assert not trained.wants_graphs
    assert trained.problem.startswith("CUDA graphs could not be captured (")
    assert "training continues" in trained.problem
    assert "\n" not in trained.problem


@pytest.mark.gpu
def test_weights_that_are_not_page_locked_are_copied_without_capture(six_layers):
    """The same bits, and the reason is told."""
    wanted, param = train(gpu_trainer(six_layers, dtype=torch.bfloat16), PASSES[:1] * 4)
    trained = gpu_trainer(six_layers, dtype=torch.bfloat16, layers_on_host=frozenset(range(6)), lockable_weights=1000)
    results, other = train(trained, PASSES[:1] * 4)
    assert "memory.weights" in trained.problem
    assert not any(step.captured for step in trained.steps.values())
    assert [one.loss for one in results] == [one.loss for one in wanted]
    assert torch.equal(other, param)


def held():
    """Bytes that torch holds once it gave back what it can, workspaces of cuBLAS for each stream among it."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@pytest.mark.gpu
@pytest.mark.parametrize("level", ["products", "offloaded", "host", "input", "weights"])
@pytest.mark.parametrize("spoils", [False, True])
def test_a_capture_that_fails_half_way_leaves_nothing_behind(adapted_llama, six_layers, monkeypatch, level, spoils):
    """With copies on their way: the pass continues eagerly, with the same losses, and no memory is lost.

    What is not permitted in a capture spoils it too, so that the copies' stream cannot be brought back to it.
    """
    options = {"dtype": torch.bfloat16, "keep": level, "rows": (8192,)}
    folders = adapted_llama
    if level == "weights":
        folders, options = six_layers, options | {"keep": "products", "layers_on_host": frozenset(range(6))}
    passes = [parity.micro_batch((128,) * 64)] * 5
    wanted, _ = train(gpu_trainer(folders, graphs=False, **options), passes)
    before = held()
    real = DecoderLayer.forward

    def forward(self, *rest, **options):
        if torch.cuda.is_current_stream_capturing() and self.shape.index == 1:
            if spoils:
                torch.cuda.synchronize()
            raise RuntimeError("broken on purpose")
        return real(self, *rest, **options)

    monkeypatch.setattr(DecoderLayer, "forward", forward)
    trained = gpu_trainer(folders, **options)
    results, _ = train(trained, passes)
    assert ("broken on purpose" in trained.problem) is not spoils
    assert trained.problem.startswith("CUDA graphs could not be captured (")
    assert [one.loss for one in results] == [one.loss for one in wanted]
    del trained
    assert spoils or held() <= before + (4 << 20)
