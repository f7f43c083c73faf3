"""The form in which ranks exchange gradients: as the recipe says, else by what one exchange takes."""

from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.facts.machine import LinkFacts
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.kept_links import with_kept_links
from burnish_engine.train.parallel import exchange_choice
from burnish_engine.train.parallel.exchange_choice import SLICES, choose_exchange

from support.machines.made_up import gpu_machine

GRADIENT = SimpleNamespace(device=torch.device("cuda"), nbytes=400 * 10**6)


@pytest.fixture
def choose(monkeypatch):
    """Choose for two cards without peer-to-peer, between which one exchange takes so many seconds."""
    card = gpu_machine("NVIDIA GeForce RTX 4090", 24 * 2**30)
    gpus = [card.gpus[0].model_copy(update={"index": index, "uuid": f"GPU-{index}"}) for index in range(2)]
    pair = card.model_copy(update={"gpus": gpus, "links": [LinkFacts(first=0, second=1)]})
    monkeypatch.setattr(exchange_choice, "probe", lambda: with_kept_links(pair))

    def choose(measured, exchange="auto", precision="bf16", passes=1.0, **devices):
        def time_exchange(*_arguments):
            if isinstance(measured, Exception):
                raise measured
            return measured

        ranks = SimpleNamespace(size=2, time_exchange=time_exchange)
        section = DevicesSection(strategy="data_parallel", gpus=[0, 1], exchange=exchange, **devices)
        return choose_exchange(ranks, GRADIENT, section, passes, precision)

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


def test_an_exchange_that_is_slower_than_its_links_is_told(choose):
    assert any("should need" in note for note in choose(2 * choose.expected).notes)
    assert not any("should need" in note for note in choose(1.2 * choose.expected).notes)


def test_what_one_exchange_takes_stands_beside_what_was_expected_and_is_expected_from_then_on(choose):
    first = choose(2 * choose.expected, "whole").measured
    assert (first.gpus, first.form, first.gradient_bytes) == (2, "whole", GRADIENT.nbytes)
    assert first.measured_ms == pytest.approx(2000 * choose.expected)
    assert first.expected_ms == pytest.approx(1000 * choose.expected)
    second = choose(2 * choose.expected, exact=True)
    assert second.measured.expected_ms == pytest.approx(first.measured_ms)
    assert second.measured.form == "exact"
    assert any("should need" in note for note in second.notes), "the links are as slow as before"
    assert [choose(0.001, form).measured.form for form in ("sliced", "bf16")] == ["sliced", "bf16"]


@pytest.mark.parametrize("here", [1, 2])
def test_of_a_network_nothing_is_expected_and_nothing_is_kept(choose, monkeypatch, here):
    pair = exchange_choice.probe()
    some = pair.model_copy(update={"gpus": pair.gpus[:here], "links": pair.links[: here - 1]})
    monkeypatch.setattr(exchange_choice, "probe", lambda: some)
    ranks = SimpleNamespace(size=2 * here, time_exchange=lambda *_arguments: 0.5)
    section = DevicesSection(strategy="data_parallel", gpus=list(range(2 * here)))
    found = choose_exchange(ranks, GRADIENT, section, 1.0, "bf16")
    assert (found.rounded, found.measured.expected_ms, found.measured.gpus) == (True, None, 2 * here)
    assert with_kept_links(pair).exchanges == []


def test_processes_on_the_cpu_are_measured_without_advice():
    gradient = SimpleNamespace(device=torch.device("cpu"), nbytes=10**6)
    ranks = SimpleNamespace(size=2, time_exchange=lambda *_arguments: 0.5)
    found = choose_exchange(ranks, gradient, DevicesSection(strategy="data_parallel", gpus=[0, 1]), 1.0, "fp32")
    assert (found.rounded, found.notes) == (False, ())
    assert (found.measured.measured_ms, found.measured.expected_ms) == (500, None)


def test_no_memory_for_a_measurement_leaves_it_out(choose):
    found = choose(torch.OutOfMemoryError("CUDA out of memory"))
    assert (found.slices, found.rounded, found.notes, found.measured) == (1, False, (), None)
    with pytest.raises(ValueError, match="other"):
        choose(ValueError("other"))
