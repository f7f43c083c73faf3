"""Steps never make the host wait for the device."""

from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from engine.train.fast.captured.gpu_runs import GPU_KINDS, gpu_trainer

from support.runs.steps import PASSES, prefetcher


@contextmanager
def no_waiting():
    """Make it an error if the host waits for the device inside."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_steps_with_layers_in_host_memory_never_wait_for_the_device(six_layers):
    trained = gpu_trainer(six_layers, dtype=torch.bfloat16, quantize=True, layers_on_host=frozenset(range(6)))
    with prefetcher(trained, PASSES * 8, 2) as ring:
        for _ in range(6):
            trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            for _ in range(10):
                trained.step(ring)
        assert len(list(trained.results(wait=True))) == 10


@pytest.mark.gpu
@pytest.mark.parametrize("kind", GPU_KINDS)
def test_a_step_never_waits_for_the_device(adapted_llama, kind):
    """From the upload to reading the results back, once every bucket was captured."""
    trained = gpu_trainer(adapted_llama, adapter=adapted_llama[2], **GPU_KINDS[kind])
    with prefetcher(trained, PASSES * 8, 2) as ring:
        for _ in range(6):
            trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            found = []
            for _ in range(10):
                trained.step(ring)
                found += trained.results()
            found += trained.results(wait=True)
    assert [result.step for result in found] == list(range(7, 17))
    assert all(result.seconds > 0 for result in found)


@pytest.mark.gpu
def test_eager_steps_do_not_wait_either(adapted_llama):
    trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, graphs=False)
    with prefetcher(trained, PASSES * 4) as ring:
        trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            for _ in range(6):
                trained.step(ring)


WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize")


@pytest.mark.gpu
def test_a_trace_of_twenty_steps_holds_no_wait(adapted_llama):
    from torch.profiler import ProfilerActivity, profile

    trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16)
    with prefetcher(trained, PASSES * 12, 1) as ring:
        for _ in range(12):
            trained.step(ring)
        list(trained.results(wait=True))
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
            for _ in range(20):
                trained.step(ring)
                list(trained.results())
            list(trained.results(wait=True))
    calls = Counter(event.name for event in trace.events())
    assert calls["cudaGraphLaunch"] >= 20 * 4  # forward, head, backward, update
    # The profiler itself waits for the device where it stops.
    assert {name: calls[name] for name in WAITS if calls[name] > (name == "cudaDeviceSynchronize")} == {}
