"""What is said to fit fits, a little more does not, and the reason is the right one."""

from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest

from burnish_engine.advise.facts.catalog import catalog, find_model
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.suggest import capacity as module
from burnish_engine.advise.suggest import largest_pass
from burnish_engine.advise.suggest.capacity import ROW_TOKENS, USUAL_MODELS, find_capacity, with_card
from burnish_engine.advise.suggest.suggest import chosen_model
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe

from support.machines.advice import CPU_24, GIB, H100, RTX_2080, machine, recorded

PLANS_EACH, LEASTS_EACH = 6, 20  # that may be looked at for an answer
LAPTOP = recorded("laptop_4060")
MACHINES = {"laptop_4060": LAPTOP, "h100": H100, "rtx_4090": machine(("NVIDIA GeForce RTX 4090", 24, (8, 9)))}


def one(name):
    return chosen_model(name, catalog(), frozenset())


def plan(reached, on, tokens, length):
    """What a person gets who writes the recipe by hand, with the settings that take the least memory."""
    recipe = Recipe.model_validate(
        {
            "model": {"path": reached.name, "quantize": "nf4" if reached.method == "qlora" else "none"},
            "data": {"max_length": length, "learn": "everything"},
            "adapter": {"rank": 16},
            "train": {"micro_batch_tokens": tokens, "recompute": True},
            "export": {"quants": []},
        }
    )
    return plan_run(recipe, find_model(reached.name).spec, on)


LOOKS = {}
"""How many plans were looked at for each answer of `whole`: by machine, by function of `reach`."""


@cache
def whole(on):
    """The answer for the whole catalog; takes seconds, so each is made once."""
    looks = LOOKS[on] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plan_run", "smallest_plan_bytes"):
            real = getattr(largest_pass, name)

            def counted(*args, name=name, real=real, **kwargs):
                looks[name] += 1
                return real(*args, **kwargs)

            patch.setattr(largest_pass, name, counted)
        return find_capacity(MACHINES[on], catalog())


def few(*names):
    """These models of the catalog."""
    found = [model for model in catalog() if model.name in names]
    assert len(found) == len(names)
    return found


@cache
def usual():
    """The answer of an H100 for the usual models and one that is too large."""
    return find_capacity(H100, few(*USUAL_MODELS, "meta-llama/Llama-3.3-70B-Instruct"))


def by(answer):
    return {(each.name, each.method): each for each in answer.models}


@pytest.mark.full
@pytest.mark.parametrize("name", ["laptop_4060", "h100", pytest.param("rtx_4090", marks=pytest.mark.long)])
def test_what_is_said_to_fit_fits_and_a_tenth_more_does_not(name):
    on, seen = MACHINES[name], 0
    for reached in whole(name).models:
        if reached.longest:
            assert plan(reached, on, reached.longest.tokens, reached.longest.tokens).fits
            assert reached.longest.memory_bytes <= on.gpus[0].vram_free_bytes
        if reached.biggest:
            assert plan(reached, on, reached.biggest.tokens, ROW_TOKENS).fits
            assert reached.biggest.tokens == ROW_TOKENS * reached.biggest.rows
        if reached.longest and "memory" in reached.longest.limited_by:
            more = int(1.1 * reached.longest.tokens)
            assert not plan(reached, on, more, more).fits, reached.title
            seen += 1
        if reached.biggest and "memory" in reached.biggest.limited_by:
            more = ROW_TOKENS * max(int(1.1 * reached.biggest.rows), reached.biggest.rows + 1)
            assert not plan(reached, on, more, ROW_TOKENS).fits, reached.title
            seen += 1
    assert seen > 1  # on a large card most end at the model's own context


@pytest.mark.full
def test_the_model_s_context_is_a_limit_of_its_own():
    longest = by(find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B")))["Qwen/Qwen3-0.6B", "lora"].longest
    assert (longest.tokens, longest.limited_by) == (40_960, "context")
    assert longest.memory_bytes < 0.9 * H100.gpus[0].vram_free_bytes


@pytest.mark.full
def test_more_memory_reaches_further_and_to_larger_models():
    before, largest = {}, {"lora": 0, "qlora": 0}
    models = few(
        "Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct"
    )
    for gib in (6, 24, 80):
        answer = find_capacity(LAPTOP, models, gpu_gib=gib)
        now = by(answer)
        for key, reached in before.items():
            if key in now and reached.longest:
                assert now[key].longest.tokens >= reached.longest.tokens
        found = {each.method: each.parameters for each in answer.models if each.largest}
        assert all(found[method] > least for method, least in largest.items())
        before, largest = now, found


@pytest.mark.full
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_nothing_clearly_larger_than_the_largest_trains(method):
    answer = whole("laptop_4060")
    (largest,) = [each for each in answer.models if each.largest and each.method == method]
    assert largest.biggest
    for model in catalog():
        if model.parameters > largest.parameters / 0.9 and not model.spec.num_experts:
            other = largest.model_copy(update={"name": model.name})
            try:
                assert not plan(other, LAPTOP, ROW_TOKENS, ROW_TOKENS).fits, model.name
            except UsageError:
                assert method == "qlora"


def test_4_bits_reach_further():
    answer = by(usual())
    for name in USUAL_MODELS:
        long, longer = answer[name, "lora"], answer[name, "qlora"]
        assert longer.longest.tokens >= long.longest.tokens
        if long.longest.limited_by == "memory":
            assert longer.longest.tokens > long.longest.tokens
        assert 0 < longer.longest.tokens_per_s <= longer.biggest.tokens_per_s * 1.01


def test_one_of_each_usual_size_is_answered_for_smallest_first():
    answer = usual()
    assert {each.name for each in answer.models} >= set(USUAL_MODELS)
    sizes = [each.parameters for each in answer.models]
    assert sizes == sorted(sizes)
    assert [each.method for each in answer.models[:2]] == ["lora", "qlora"]


@pytest.mark.full
def test_what_does_not_fit_says_why():
    answer = by(find_capacity(LAPTOP, catalog(), only=one("Qwen/Qwen3-32B")))
    reached = answer["Qwen/Qwen3-32B", "qlora"]
    assert reached.longest is None
    assert reached.biggest is None
    assert "base weights" in reached.problem


def test_a_card_that_the_fast_engine_does_not_know_has_no_qlora():
    answer = find_capacity(RTX_2080, few("Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B-Instruct-2507"))
    assert answer.precision == "fp32"
    assert {each.method for each in answer.models if each.longest} == {"lora"}
    assert all("older" in each.problem for each in answer.models if each.method == "qlora")


@pytest.mark.full
def test_a_processor_trains_in_system_memory():
    answer = find_capacity(CPU_24, few("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"))
    assert answer.device == "CPU"
    assert answer.memory_free_bytes == CPU_24.ram_free_bytes
    assert {each.method for each in answer.models} == {"lora"}
    assert all(each.longest.limited_by in ("memory", "context") for each in answer.models if each.longest)
    assert any("processor" in note for note in answer.notes)


@pytest.mark.full
def test_a_card_of_another_size_is_as_fast_as_this_one():
    here = by(find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B")))["Qwen/Qwen3-0.6B", "lora"]
    small = find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B"), gpu_gib=12)
    there = by(small)["Qwen/Qwen3-0.6B", "lora"]
    assert "12 GiB" in small.device
    assert "H100" in small.device
    assert small.memory_free_bytes == 12 * GIB
    assert there.biggest.memory_bytes < 12 * GIB < here.biggest.memory_bytes
    unknown = by(find_capacity(machine(ram_gib=256), catalog(), only=one("Qwen/Qwen3-0.6B"), gpu_gib=12))
    assert there.longest.tokens_per_s > 5 * unknown["Qwen/Qwen3-0.6B", "lora"].longest.tokens_per_s


def test_without_a_card_a_card_s_speed_is_that_of_a_slow_one():
    answer = find_capacity(CPU_24, catalog(), only=one("Qwen/Qwen3-0.6B"), gpu_gib=12)
    assert answer.device == "a card of 12 GiB"
    assert any("slow" in note for note in answer.notes)
    assert all(each.longest for each in answer.models)


@pytest.mark.parametrize("gib", [0.1, -8, 10_000, float("nan")])
def test_no_card_has_that_memory(gib):
    with pytest.raises(UsageError, match="no card's memory"):
        with_card(H100, gib)


@pytest.mark.full
def test_a_full_disk_is_a_note_not_a_limit():
    full, models = H100.model_copy(update={"disk_free_bytes": 2 * GIB}), few("Qwen/Qwen3-0.6B", "Qwen/Qwen3-32B")
    roomy, answer = find_capacity(H100, models), find_capacity(full, models)
    assert answer.models == roomy.models
    (note,) = [note for note in answer.notes if "disk" in note]
    assert "Qwen3 32B" in note
    assert "Qwen3 0.6B" not in note
    assert not [note for note in roomy.notes if "disk" in note]


def straight(limit):
    return lambda count: 3.0 * count - 3.0 * limit - 1


def bent(limit):
    return lambda count: count**2 - limit**2 - 1.0


def steep(limit):
    return lambda count: 1e18 if count > limit else -1.0


@pytest.mark.parametrize("most", [200, 256, 300, 2048, 7_777, 40_959, 130_000, 200_000])
@pytest.mark.parametrize("shortfall", [straight, bent, steep])
def test_the_search_finds_the_limit_to_one_percent_or_a_step(shortfall, most):
    looks = []

    def counted(count):
        looks.append(count)
        return shortfall(most)(count)

    found = largest_pass.most_that_fits(counted, 256, 131_072, step=64)
    if most < 256:
        assert found == 0
    elif most > 131_072:
        assert found == 131_072
    else:
        assert most - max(64, 0.01 * most) <= found <= most
    assert len(looks) == len(set(looks)) < (8 if shortfall is straight else 40)


@pytest.mark.parametrize("guess", [1, 50, 77, 78, 90, 127, 128, 500])
def test_a_guess_changes_nothing_but_the_number_of_looks(guess):
    looks = []

    def shortfall(count):
        looks.append(count)
        return count - 77.5

    assert largest_pass.most_that_fits(shortfall, 1, 128, step=1, guess=guess) == 77
    assert len(looks) == 2 if guess == 77 else len(looks) > 2


@pytest.mark.full
def test_system_memory_is_a_limit_of_its_own():
    """What layers keep may be moved there; with more of it, rows are longer, until the card is the limit."""
    name = "Qwen/Qwen3-1.7B"
    reached = []
    for gib in (7, 9, 512):
        on = LAPTOP.model_copy(update={"ram_total_bytes": gib * GIB, "ram_free_bytes": int(0.7 * gib * GIB)})
        reached.append(by(find_capacity(on, catalog(), only=one(name)))[name, "lora"].longest)
    small, medium, large = reached
    assert small.tokens < medium.tokens < large.tokens
    assert [small.limited_by, medium.limited_by] == ["system memory", "system memory"]
    assert large.limited_by in ("memory", "context")
    assert small.host_bytes <= 7 * GIB
    moved = find_capacity(LAPTOP, catalog(), only=one(name))
    assert any("system memory, which takes time" in note for note in moved.notes)


@pytest.mark.full
def test_weights_in_system_memory_are_told_where_there_are_some():
    def told(gib, name):
        answer = find_capacity(H100, catalog(), only=one(name), gpu_gib=gib)
        return any("every pass copies" in note for note in answer.notes)

    assert told(8, "Qwen/Qwen3-14B")
    assert not told(80, "Qwen/Qwen3-0.6B")


def test_without_system_memory_to_load_into_nothing_fits():
    on = H100.model_copy(update={"ram_free_bytes": GIB})
    (reached, _) = find_capacity(on, catalog(), only=one("Qwen/Qwen3-0.6B")).models
    assert reached.longest is None
    assert "system memory" in reached.problem


@pytest.mark.full
def test_how_far_off_predictions_were_is_told(monkeypatch):
    reached = find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B")).models[0]
    device = plan(reached, H100, ROW_TOKENS, ROW_TOKENS).basis.device

    def ran(on, measured, speed):
        return SimpleNamespace(
            device=on,
            process_bytes=measured,
            memory={"all": 100},
            tokens_per_s=100.0,
            measured_tokens_per_s=speed,
        )

    runs = [ran(device, 103, 80.0), ran(device, 93, None), ran(device, 102, None), ran("another", 500, 1.0)]
    monkeypatch.setattr(module, "past_runs", lambda: runs)
    (note,) = find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B")).notes
    assert "3% in memory" in note
    assert "20% in speed" in note
    assert "3 past runs" in note
    monkeypatch.setattr(module, "past_runs", lambda: runs[3:])
    assert find_capacity(H100, catalog(), only=one("Qwen/Qwen3-0.6B")).notes == []


@pytest.mark.full
def test_progress_names_every_model_once():
    told = []
    models = few("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B")
    find_capacity(LAPTOP, models, progress=lambda title, done, total: told.append((title, done, total)))
    assert {title for title, _, _ in told} >= {model.title for model in models}
    assert [done for _, done, _ in told] == list(range(len(told)))
    assert all(total == len(told) for _, _, total in told)


@pytest.mark.full
def test_the_search_looks_at_few_plans():
    """About two seconds for a catalog of fifty models: a plan takes some 30 ms, the least that one takes about 1 ms."""
    answers = len(whole("laptop_4060").models)
    looks = LOOKS["laptop_4060"]
    assert 0 < looks["plan_run"] <= PLANS_EACH * answers
    assert 0 < looks["smallest_plan_bytes"] <= LEASTS_EACH * answers
