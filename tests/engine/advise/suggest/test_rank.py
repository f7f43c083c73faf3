"""Which models an expert would put first on a machine and for a target, and what he would say about the others."""

from functools import cache

import pytest

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, find_model
from burnish_engine.advise.suggest import rank as ranking

from support.machines.advice import (
    CHATS,
    CPU_16,
    CPU_24,
    DESKTOP,
    DESKTOP_4060,
    DOCUMENTS,
    GIB,
    H100,
    H200,
    LAPTOP,
    PHONE,
    RTX_2080,
    recorded,
    remembered_fits,
)

BILLION = 1e9
MACHINES = {"desktop_4060": DESKTOP_4060, "h100": H100, "h200": H200, "rtx_2080": RTX_2080} | {
    "cpu_16": CPU_16, "cpu_24": CPU_24,
}  # fmt: skip
SOME = ("Qwen/Qwen3-", "meta-llama/", EMBEDDED)
"""Names of models of all sizes begin so."""
TARGETS = {"phone": PHONE, "laptop": LAPTOP, "desktop": DESKTOP}


@pytest.fixture(scope="module", autouse=True)
def fits():
    with remembered_fits():
        yield


def machine_of(name):
    return MACHINES.get(name) or recorded(name)


@cache
def rank(machine, target="laptop", names=""):
    """The models whose names begin so, or all, for a usual job; all take seconds, so each ranking is made once."""
    models = [model for model in catalog() if model.name.startswith(names)]
    return [one.ranked for one in ranking.judge_all(machine_of(machine), models, TARGETS[target])]


def first(machine, target="laptop", dataset=None):
    return ranking.judge_best(machine_of(machine), catalog(), TARGETS[target], dataset=dataset).ranked


def by_name(ranked):
    return {one.model.name: one for one in ranked}


# Machine, target, weights of the first model between.
FIRST = [
    ("laptop_4060", "phone", 1.5, 3.5),
    ("laptop_4060", "laptop", 7, 9),
    ("desktop_4060", "laptop", 7, 9),
    ("rtx_2080", "laptop", 1, 2),
    ("pair_4090", "phone", 1.5, 3.5),
    ("pair_4090", "laptop", 4, 9),
    ("pair_3090_nvlink", "laptop", 4, 9),
    ("single_5090", "laptop", 4, 9),
    ("single_5090", "desktop", 4, 15),
    ("h100", "phone", 1.5, 3.5),
    ("h100", "laptop", 7, 9),
    ("h100", "desktop", 12, 36),
    ("h200", "laptop", 7, 9),
    ("unified_gb10", "laptop", 4, 9),
    ("cpu_16", "laptop", 0.1, 1),
    ("cpu_24", "phone", 0.1, 1),
]


@pytest.mark.full
@pytest.mark.parametrize(("machine", "target", "least", "most"), FIRST)
def test_the_first_is_of_the_size_an_expert_takes(machine, target, least, most):
    one = first(machine, target)
    assert least * BILLION <= one.model.parameters <= most * BILLION, one.model.name
    assert one.verdict == "good"
    assert one.model.exports
    assert one.model.kind == "chat"
    assert not one.model.gated


@pytest.mark.full
@pytest.mark.parametrize(
    ("machine", "target"), [("laptop_4060", "laptop"), ("cpu_16", "laptop"), ("h100", "phone"), ("no_gpu", "phone")]
)
def test_the_first_is_the_same_whether_or_not_the_others_are_judged(machine, target):
    assert first(machine, target) == rank(machine, target)[0]


def test_a_single_model_is_the_first_whatever_its_verdict():
    (huge,) = [one for one in catalog() if one.name == "meta-llama/Llama-3.3-70B-Instruct"]
    assert ranking.judge_best(CPU_16, [huge], PHONE).ranked.verdict == "too_big_to_train"
    with pytest.raises(ValueError, match="no model"):
        ranking.judge_best(CPU_16, [], PHONE)


@pytest.mark.full
def test_4_bits_are_for_models_that_do_not_fit_in_16():
    small = by_name(rank("laptop_4060"))
    assert small["Qwen/Qwen3-4B"].method == "qlora"
    assert small["Qwen/Qwen3-4B"].train_bytes < 6.6 * GIB < 2 * small["Qwen/Qwen3-4B"].model.parameters
    assert "QLoRA" in small["Qwen/Qwen3-4B"].reason
    assert small["Qwen/Qwen3-1.7B"].method == "lora"
    large = rank("h100")
    assert all(one.method == "lora" for one in large if one.model.parameters < 10 * BILLION)


def test_4_bits_have_to_be_worth_it():
    """A model that needs 4 bits comes before one that does not only if it is clearly better."""
    ranked = [one for one in rank("laptop_4060", names=SOME) if one.verdict == "good"]
    names = [one.model.name for one in ranked if one.model.exports and one.model.kind == "chat"]
    assert names.index("Qwen/Qwen3-4B") < names.index("Qwen/Qwen3-1.7B")
    merit = {one.model.name: one.model.parameters * one.model.merit for one in ranked}
    for name in names:
        first = next(one for one in ranked if one.model.name == name)
        if first.method == "qlora" and names.index(name) < names.index("Qwen/Qwen3-1.7B") and not first.model.gated:
            assert merit[name] > 1.25 * merit["Qwen/Qwen3-1.7B"]


@pytest.mark.full
def test_processors_and_old_cards_are_never_told_4_bits():
    for machine in ("cpu_16", "rtx_2080"):
        assert {one.method for one in rank(machine)} == {"lora"}


def test_a_phone_and_a_laptop_get_different_models():
    phone, laptop = (rank("h100", target, SOME) for target in ("phone", "laptop"))
    assert phone[0].model.name != laptop[0].model.name
    assert by_name(phone)[laptop[0].model.name].verdict == "too_big_for_target"
    assert phone[0].run_bytes < 3 * GIB


def test_verdicts_name_what_is_in_the_way():
    ranked = by_name(rank("laptop_4060", names=SOME))
    assert ranked["Qwen/Qwen3-14B"].verdict == "too_big_to_train"
    assert "memory" in ranked["Qwen/Qwen3-14B"].reason
    assert "not even in 4 bits" in ranked["Qwen/Qwen3-14B"].reason
    assert ranked["meta-llama/Llama-3.3-70B-Instruct"].verdict == "too_big_to_train"
    assert ranked["meta-llama/Llama-3.3-70B-Instruct"].train_bytes > 100 * BILLION
    assert ranked[EMBEDDED].verdict == "small"
    phone = by_name(rank("h100", "phone", SOME))
    assert phone["Qwen/Qwen3-8B"].verdict == "too_big_for_target"
    assert "GiB" in phone["Qwen/Qwen3-8B"].reason


@pytest.mark.full
def test_a_mixture_is_worth_what_a_dense_model_between_its_two_sizes_is():
    names = [f"Qwen/Qwen3-{size}" for size in ("14B", "30B-A3B", "8B")]
    models = [find_model(name).model_copy(update={"exports": True}) for name in reversed(names)]
    assert [one.ranked.model.name for one in ranking.judge_all(H100, models, DESKTOP)] == names


@pytest.mark.full
def test_what_cannot_leave_as_a_gguf_comes_after_what_can():
    models = [
        model.model_copy(update={"exports": model.exports and number % 3 > 0}) for number, model in enumerate(catalog())
    ]
    ranked = [one.ranked for one in ranking.judge_all(H200, models, DESKTOP)]
    fitting = [one for one in ranked if not one.verdict.startswith("too_big")]
    kinds = [one.model.exports for one in fitting]
    assert kinds == sorted(kinds, reverse=True)
    assert any("cannot export" in one.reason for one in fitting)


def test_order_is_good_then_tight_then_small_then_impossible():
    order = [{"good"}, {"tight", "slow"}, {"small"}, {"too_big_for_target"}, {"too_big_to_train"}]
    for machine in ("laptop_4060", "h100", "cpu_16"):
        ranked = [one for one in rank(machine, names=SOME) if one.model.exports]
        places = [next(at for at, kinds in enumerate(order) if one.verdict in kinds) for one in ranked]
        assert places == sorted(places)


@pytest.mark.full
def test_slow_is_said_of_time_and_tight_of_memory():
    words = ("hours", "slow", "tokens/s")
    said = [(one.verdict, one.reason) for machine in ("laptop_4060", "cpu_16") for one in rank(machine)]
    slow, tight = ([reason for verdict, reason in said if verdict == kind] for kind in ("slow", "tight"))
    assert slow
    assert tight
    assert all(any(word in reason for word in words) for reason in slow)
    assert not any(word in reason for reason in tight for word in words)


@pytest.mark.full
def test_a_processor_trains_small_models_and_says_how_long_others_take():
    ranked = rank("cpu_16")
    assert all(one.model.parameters < BILLION for one in ranked if one.verdict == "good")
    slow = [one for one in ranked if one.verdict == "slow" and one.model.exports]
    assert slow
    assert any("hours" in one.reason and f"{ranking.USUAL_TOKENS:,} tokens" in one.reason for one in slow)
    judged = ranking.judge_all(machine_of("cpu_16"), [one.model for one in slow], TARGETS["laptop"], dataset=CHATS)
    own = [one.ranked for one in judged]
    assert not any(f"{ranking.USUAL_TOKENS:,}" in one.reason for one in own)


@pytest.mark.full
def test_more_data_makes_slow_machines_choose_smaller_models():
    few = first("cpu_16").model.parameters
    many = first("cpu_16", dataset=CHATS).model.parameters
    assert many < few
    assert first("h100", dataset=CHATS).model.parameters > 7 * BILLION


@pytest.mark.full
def test_long_documents_call_for_a_model_that_reads_them():
    assert first("pair_4090", dataset=DOCUMENTS).model.spec.max_context >= 8192


def test_what_is_here_is_marked_and_downloads_have_a_size():
    models = [one for one in catalog() if one.name in {"Qwen/Qwen3-8B", "Qwen/Qwen3-14B"}]
    judged = ranking.judge_all(H100, models, LAPTOP, here={"Qwen/Qwen3-8B"})
    ranked = by_name([one.ranked for one in judged])
    assert ranked["Qwen/Qwen3-8B"].here
    assert not ranked["Qwen/Qwen3-14B"].here
    assert ranked["Qwen/Qwen3-14B"].download_bytes == pytest.approx(29.5 * BILLION, rel=0.01)


def test_figures_are_those_of_the_file_that_would_be_made():
    one = by_name(rank("h100", names=SOME))["Qwen/Qwen3-8B"]
    assert one.file_bytes < one.run_bytes < one.file_bytes + 1.5 * BILLION
    assert one.train_bytes > 2 * one.model.parameters
    assert one.tokens_per_s > 1000
