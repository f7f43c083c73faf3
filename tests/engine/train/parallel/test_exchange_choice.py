"""The form in which ranks exchange gradients: as the recipe says, else by what one exchange takes."""

from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.train.parallel import exchange_choice
from burnish_engine.train.parallel.exchange_choice import SLICES, choose_exchange

from support.machines import gpu_machine

GRADIENT = SimpleNamespace(device=torch.device("cuda"), nbytes=400 * 10**6)


@pytest.fixture
def choose(monkeypatch):
    """Choose for two cards without peer-to-peer, between which one exchange takes so many seconds."""
    card = gpu_machine("NVIDIA GeForce RTX 4090", 24 * 2**30)
    gpus = [card.gpus[0].model_copy(update={"index": index}) for index in range(2)]
    pair = card.model_copy(update={"gpus": gpus})
    monkeypatch.setattr(exchange_choice, "probe", lambda: pair)

    def choose(measured, exchange="auto", precision="bf16", passes=1.0, size=2, gradient=GRADIENT, **devices):
        def time_exchange(*_arguments):
            if isinstance(measured, Exception):
                raise measured
            return measured

        ranks = SimpleNamespace(size=size, time_exchange=time_exchange)
        section = DevicesSection(strategy="data_parallel", gpus=[0, 1], exchange=exchange, **devices)
        return choose_exchange(ranks, gradient, section, passes, precision)

    choose.expected = parallel_settings(pair, adapter_bytes=GRADIENT.nbytes).exchange_ms / 1000
    return choose


def test_a_fast_link_changes_nothing(choose):
    found = choose(0.001)
    assert (found.slices, found.rounded, found.notes) == (1, False, ())


def test_over_a_slow_link_gradients_are_rounded_and_that_is_said(choose):
    assert not choose(0.04).rounded
    found = choose(0.06)
    assert (found.slices, found.rounded) == (1, True)
    assert any("bf16" in note for note in found.notes)
    assert not choose(0.06, passes=2.0).rounded


def test_what_the_recipe_says_counts_more(choose):
    assert choose(0.06, "whole").slices == 1
    assert not choose(0.06, "whole").rounded
    assert choose(0.001, "sliced").slices == SLICES
    assert choose(0.001, "bf16").rounded


def test_scaled_gradients_and_sums_in_order_are_never_rounded(choose):
    assert not choose(0.06, precision="fp16").rounded
    assert not choose(0.06, "bf16", precision="fp16").rounded
    assert not choose(0.06, exact=True).rounded


def test_the_measured_time_stands_beside_the_expected_one(choose):
    times = choose(0.06).times
    assert (times.processes, times.size_bytes, times.measured_s, times.rounded) == (2, GRADIENT.nbytes, 0.06, True)
    assert times.predicted_s == pytest.approx(choose.expected)
    # Not all GPUs are known where processes of several machines share the run.
    assert choose(0.06, size=4).times.predicted_s is None


def test_a_processor_is_timed_and_rounds_nothing(choose):
    found = choose(10.0, gradient=SimpleNamespace(device=torch.device("cpu"), nbytes=400))
    assert (found.rounded, found.times.measured_s, found.times.predicted_s) == (False, 10.0, None)


def test_an_exchange_that_is_slower_than_its_links_is_told(choose):
    assert any("should need" in note for note in choose(2 * choose.expected).notes)
    assert not any("should need" in note for note in choose(1.2 * choose.expected).notes)


def test_no_memory_for_a_measurement_leaves_it_out(choose):
    found = choose(torch.OutOfMemoryError("CUDA out of memory"))
    assert (found.slices, found.rounded, found.notes, found.times) == (1, False, (), None)
    with pytest.raises(ValueError, match="other"):
        choose(ValueError("other"))
