"""The recipe an expert would write: for each machine, target and dataset."""

import json

import pytest

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, find_model
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.suggest.settings import FitInputs, learning_rate, quick_fit
from burnish_engine.advise.suggest.suggest import ChosenModel, TrainingGoal, chosen_model, suggest
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.data_report import DatasetReport, TaskHint
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.models.families import family

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
    TINY,
    dataset,
    machine,
    recorded,
    remembered_fits,
)

MACHINES = {
    name: recorded(name) for name in ("laptop_4060", "pair_4090", "pair_3090_nvlink", "single_5090", "unified_gb10")
} | {"desktop_4060": DESKTOP_4060, "h100": H100, "h200": H200, "cpu_16": CPU_16, "cpu_24": CPU_24}
TARGETS = {"phone": PHONE, "laptop": LAPTOP, "desktop": DESKTOP}
DATASETS = {"none": None, "tiny": TINY, "chats": CHATS, "documents": DOCUMENTS}


@pytest.fixture(scope="module", autouse=True)
def fits():
    with remembered_fits():
        yield


ANSWERS = {}


def ask(where, target=LAPTOP, data=None, *, model=None, here=(), **wish):
    """A suggestion; each is made once."""
    question = repr((where, target, data, model, sorted(here), wish))
    if question not in ANSWERS:
        chosen = chosen_model(model, catalog(), here) if model else None
        wished = TrainingGoal(target=target, data=["/d/a.jsonl"], dataset=data, model=chosen, **wish)
        ANSWERS[question] = suggest(where, catalog(), wished, here=here)
    return ANSWERS[question]


def recipe_of(suggestion):
    return parse_recipe(suggestion.recipe)


def of_a_newer_family():
    """A model that this version trains by transformers and does not export."""
    spec = find_model("Qwen/Qwen3-4B").spec.model_copy(update={"family": "newer_model"})
    return ChosenModel("a/newer-model", "A newer model", spec, here=False)


def reasons(suggestion):
    return {choice.key: choice.reason for choice in suggestion.choices}


EVERY_PAIR = [
    pytest.param(*names, id="-".join(names), marks=() if turn in {one, one + 10} else pytest.mark.long)
    for one, where in enumerate(MACHINES)
    for turn in range(12)
    for names in [(where, list(TARGETS)[turn % 3], list(DATASETS)[turn % 4])]
]
"""Each machine, and each target with each dataset; the rest before a release."""


@pytest.mark.full
@pytest.mark.parametrize(("where", "target", "data"), EVERY_PAIR)
def test_every_suggestion_is_a_valid_recipe_that_fits_with_a_reason_a_choice(where, target, data):
    suggestion = ask(MACHINES[where], TARGETS[target], DATASETS[data])
    recipe = recipe_of(suggestion)
    assert suggestion.plan.fits, suggestion.plan.problems
    assert suggestion.plan.memory_bytes < 0.95 * suggestion.plan.memory_free_bytes
    assert recipe.model.path == suggestion.model
    document = recipe.model_dump()
    for choice in suggestion.choices:
        section, key = choice.key.split(".")
        value = document[section][key]
        joined = ", ".join(map(str, value)) if isinstance(value, list) else ""
        assert choice.value in {
            joined,
            str(value),
            str(value).lower(),
            f"{value:g}" if isinstance(value, float) else "",
        }
        assert choice.reason.endswith(".")
        assert ". " not in choice.reason.removesuffix("."), choice.reason
    assert len({choice.key for choice in suggestion.choices}) == len(suggestion.choices) >= 12
    assert len(recipe.export.quants) == 1
    assert recipe.target.kind == target


@pytest.mark.full
@pytest.mark.parametrize("where", ["no_gpu", "driver_not_loaded", "library_missing", "cpu_16", "cpu_24"])
def test_without_a_gpu_the_model_is_small_and_the_reason_is_said(where):
    machine = MACHINES.get(where) or recorded(where)
    suggestion = ask(machine)
    name = EMBEDDED if suggestion.model == "embedded" else suggestion.model
    assert find_model(name).parameters < 1_000_000_000
    assert any("GPU" in warning for warning in suggestion.warnings)
    # A GPU that does not answer must not stop a run that was meant for the processor.
    assert recipe_of(suggestion).devices.kind == ("cpu" if machine.gpu_problem else "auto")


@pytest.mark.full
def test_a_model_that_becomes_no_gguf_is_given_no_type_of_one():
    suggestion = suggest(H100, catalog(), TrainingGoal(target=LAPTOP, model=of_a_newer_family()))
    assert "export.quants" not in reasons(suggestion)
    assert not any("tokens/s on a" in warning for warning in suggestion.warnings)
    assert any("exported only as" in warning for warning in suggestion.warnings)


@pytest.mark.full
def test_the_tiny_dataset_gets_small_steps_several_passes_and_a_small_rank():
    suggestion = ask(H100, data=TINY)
    recipe = recipe_of(suggestion)
    assert 3 <= recipe.train.epochs <= 5
    assert recipe.adapter.rank <= 8
    assert recipe.train.micro_batch_tokens * recipe.train.accumulation <= 2048
    assert suggestion.plan.steps >= 50
    assert recipe.data.max_length == 512
    assert recipe.data.validation_share == 0.1
    assert recipe.train.warmup_share >= 0.05


@pytest.mark.full
def test_reasons_count_the_rows_that_the_recipe_holds_out_and_another_share_is_offered():
    usual, half = ask(H100, data=TINY), ask(H100, data=TINY, held_out=0.5)
    assert half.plan.steps < usual.plan.steps
    assert recipe_of(half).data.validation_share == 0.1
    told = [reasons(one)["train.epochs"] for one in (usual, half)]
    assert ("90 rows" in told[0], "50 rows" in told[1]) == (True, True)
    held = {reasons(one)["data.validation_share"] for one in (usual, half)}
    assert len(held) == 1, "of the share that is suggested"


@pytest.mark.full
def test_where_no_row_can_be_held_out_no_reason_speaks_of_held_out_rows():
    found = reasons(ask(H100, data=dataset(1, [(64, 1)])))
    assert "too few rows" in found["data.validation_share"]
    assert found["train.epochs"].startswith("1 row,")
    assert "evaluation.every" not in found


@pytest.mark.full
def test_the_large_dataset_gets_large_steps_one_pass_and_more_rank():
    suggestion = ask(H100, data=CHATS)
    recipe = recipe_of(suggestion)
    assert recipe.train.epochs == 1
    assert recipe.adapter.rank >= 32
    assert 8_192 <= recipe.train.micro_batch_tokens * recipe.train.accumulation <= 32_768
    assert suggestion.plan.steps > 300
    held = round(recipe.data.validation_share * 50_000)
    assert 300 <= held <= 1_000


@pytest.mark.full
def test_alpha_keeps_the_scale_that_the_learning_rate_is_made_for():
    huge = dataset(2_000_000, [(256, 2_000_000)])
    for data in (None, TINY, CHATS, huge):
        adapter = recipe_of(ask(H200, data=data)).adapter
        root = adapter.rank**0.5 if adapter.method == "rslora" else adapter.rank
        assert adapter.alpha / root == pytest.approx(2.0)
    assert adapter.method == "rslora"


@pytest.mark.full
def test_long_documents_keep_their_length_where_memory_allows():
    small, large = ask(MACHINES["laptop_4060"], data=DOCUMENTS), ask(H200, data=DOCUMENTS)
    assert recipe_of(large).data.max_length >= 16_384
    assert recipe_of(small).data.max_length >= 16_384
    assert set(small.plan.memory_plan.layers) & {"offloaded", "narrow", "attention", "host"}
    assert find_model(small.model).parameters < find_model(large.model).parameters / 4
    chosen = ask(MACHINES["laptop_4060"], data=DOCUMENTS, model="Qwen/Qwen3-8B")
    assert recipe_of(chosen).data.max_length < 16_384
    assert "memory" in reasons(chosen)["data.max_length"]
    assert any("are cut" in warning for warning in chosen.warnings)


@pytest.mark.full
def test_a_card_of_8_gb_trains_4b_and_more_in_4_bits_and_says_why():
    for where in (DESKTOP_4060, MACHINES["laptop_4060"]):
        suggestion = ask(where, data=CHATS)
        recipe = recipe_of(suggestion)
        assert 3.5e9 < find_model(suggestion.model).parameters < 8.5e9
        assert recipe.model.quantize == "nf4"
        assert "4 bits" in reasons(suggestion)["model.quantize"]
        assert "4 bits" in reasons(suggestion)["model.path"]
        whole = recipe.model_copy(update={"model": recipe.model.model_copy(update={"quantize": "none"})})
        plan = plan_run(whole, find_model(suggestion.model).spec, where)
        assert not plan.fits or plan.memory_plan.layers_on_host


@pytest.mark.full
def test_16_bits_are_kept_where_they_fit():
    for suggestion in (ask(H100), ask(DESKTOP_4060, model="Qwen/Qwen3-0.6B"), ask(CPU_16)):
        assert recipe_of(suggestion).model.quantize == "none"
        assert "model.quantize" not in reasons(suggestion)


def test_4_bits_are_suggested_for_a_chosen_model_that_fits_only_so():
    suggestion = ask(MACHINES["pair_4090"], DESKTOP, model="Qwen/Qwen3-14B")
    assert suggestion.plan.fits
    assert recipe_of(suggestion).model.quantize == "nf4"


@pytest.mark.full
def test_4_bits_are_suggested_only_where_the_fast_engine_trains():
    """The plain engine trains in 4 bits too, but no test takes a mixture of experts so from plan to export."""
    for entry in catalog():
        if family(entry.spec.family) is None:
            fit = quick_fit(FitInputs(entry.name, entry.spec, H100, LAPTOP, None))
            assert fit.recipe.model.quantize == "none", entry.name
    entry = find_model("mistralai/Ministral-3-8B-Instruct-2512-BF16")
    assert quick_fit(FitInputs(entry.name, entry.spec, DESKTOP_4060, LAPTOP, None)).recipe.model.quantize == "nf4"


@pytest.mark.full
def test_weights_in_system_memory_are_told():
    streamed = ask(DESKTOP_4060, model="Qwen/Qwen3-32B")
    assert streamed.plan.memory_plan.layers_on_host
    assert any("are copied to the GPU in every pass" in note for note in streamed.plan.notes)
    whole = ask(H100, model="Qwen/Qwen3-0.6B")
    assert not any("are copied to the GPU" in note for note in whole.plan.notes)


@pytest.mark.full
def test_projections_under_other_names_get_their_adapters():
    suggestion = ask(H100, model="microsoft/Phi-4-mini-instruct")
    assert recipe_of(suggestion).adapter.targets == ["auto"]
    assert suggestion.plan.coverage.text in reasons(suggestion)["adapter.targets"]
    assert suggestion.plan.coverage.share_text == "100 %"


@pytest.mark.full
def test_how_the_memory_is_used_is_left_to_the_plan():
    for where in (MACHINES["laptop_4060"], MACHINES["pair_4090"], H100, CPU_16):
        suggestion = ask(where, data=CHATS)
        recipe = recipe_of(suggestion)
        assert not recipe.train.recompute
        assert recipe.memory.layers == "auto"
        assert suggestion.plan.memory_bytes <= suggestion.plan.memory_budget_bytes


@pytest.mark.full
def test_the_plain_engine_recomputes_only_where_the_run_does_not_fit_without():
    suggestion = ask(RTX_2080, data=DOCUMENTS)
    recipe = recipe_of(suggestion)
    assert suggestion.plan.memory_plan is None
    assert recipe.train.recompute
    assert "train.recompute" in reasons(suggestion)
    kept = recipe.model_copy(update={"train": recipe.train.model_copy(update={"recompute": False})})
    plan = plan_run(kept, find_model(suggestion.model).spec, RTX_2080)
    assert plan.memory_bytes > 0.9 * plan.memory_free_bytes


def test_larger_models_learn_slower():
    rates = [learning_rate(width) for width in (576, 1024, 2048, 4096, 8192)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1e-3
    assert learning_rate(4096) == pytest.approx(3e-4)


@pytest.mark.full
def test_precision_follows_the_device():
    assert recipe_of(ask(H100)).train.precision == "bf16"
    assert recipe_of(ask(RTX_2080)).train.precision == "fp32"
    assert recipe_of(ask(CPU_16)).train.precision == "fp32"
    assert recipe_of(ask(CPU_16.model_copy(update={"bf16_cpu": True}))).train.precision == "bf16"


@pytest.mark.full
def test_of_several_gpus_the_one_with_the_most_free_memory_is_used():
    suggestion = ask(recorded("unlike_3060_4090"))
    gpus = {gpu.index: gpu.name for gpu in recorded("unlike_3060_4090").gpus}
    assert "4090" in gpus[recipe_of(suggestion).devices.gpus[0]]
    assert "most free memory" in reasons(suggestion)["devices.gpus"]
    assert "devices.gpus" not in reasons(ask(H100))


@pytest.mark.full
def test_memory_held_by_others_makes_the_suggestion_smaller():
    gpu = H100.gpus[0]
    busy = H100.model_copy(update={"gpus": [gpu.model_copy(update={"vram_free_bytes": 2 * GIB})]})
    free_size = find_model(ask(H100).model).parameters
    assert find_model(ask(busy).model).parameters < free_size / 2


@pytest.mark.full
def test_a_model_that_has_to_be_fetched_is_said_with_its_command_and_what_can_start_now():
    found = ask(H100)
    text = " ".join(found.warnings)
    assert f"burnish models fetch {found.model}" in text
    assert "--model embedded" in text
    assert "burnish models fetch" not in " ".join(ask(H100, here={found.model}).warnings)


def test_the_download_counts_as_disk():
    found = ask(H100)
    fetched = ask(H100, here={found.model}).plan.disk_bytes
    assert found.plan.disk_bytes - fetched == find_model(found.model).download_bytes > 1e9


def test_a_chosen_model_is_kept_even_where_another_would_be_better():
    suggestion = ask(H100, model="qwen3-0.6b", data=TINY)
    assert suggestion.model == "Qwen/Qwen3-0.6B"
    assert suggestion.plan.fits
    assert reasons(suggestion)["model.path"] == "You chose it."


@pytest.mark.full
def test_a_chosen_model_that_cannot_be_trained_says_what_can():
    suggestion = ask(MACHINES["laptop_4060"], model="Qwen/Qwen3-14B")
    assert not suggestion.plan.fits
    assert "cannot be trained here" in suggestion.warnings[0]
    other = suggestion.warnings[0].rpartition("--model ")[2]
    assert ask(MACHINES["laptop_4060"], model=other).plan.fits


def test_a_chosen_model_too_large_for_the_target_says_so():
    suggestion = ask(H100, PHONE, model="Qwen/Qwen3-8B")
    assert suggestion.plan.fits
    assert any("more than the" in warning and "phone" in warning for warning in suggestion.warnings)


@pytest.mark.full
def test_where_nothing_fits_the_suggestion_says_so():
    suggestion = ask(machine(ram_gib=2, cores=2))
    assert not suggestion.plan.fits
    assert suggestion.plan.problems
    assert "No model of the catalog fits" in suggestion.warnings[0]


@pytest.mark.full
def test_licenses_gates_and_missing_export_are_said():
    gated = " ".join(ask(H100, model="meta-llama/Llama-3.1-8B-Instruct").warnings)
    assert "gated" in gated
    assert "Community License" in gated
    assert "not for commercial use" in " ".join(ask(H100, model="Qwen/Qwen2.5-3B-Instruct").warnings)
    newer = suggest(H100, catalog(), TrainingGoal(target=LAPTOP, model=of_a_newer_family()))
    assert "newer_model" in " ".join(newer.warnings)


@pytest.mark.full
def test_the_embedded_model_needs_no_download():
    suggestion = ask(CPU_24, model="embedded", data=TINY)
    assert suggestion.model == "embedded"
    assert not any("fetch" in warning for warning in suggestion.warnings)


def test_an_unknown_model_is_refused():
    with pytest.raises(UsageError, match="not on this machine"):
        ask(H100, model="Nobody/Nothing-1B")


@pytest.mark.full
def test_validation_files_leave_all_rows_to_training():
    suggestion = ask(H100, data=CHATS, validation=["/d/held.jsonl"])
    assert recipe_of(suggestion).data.validation_files == ["/d/held.jsonl"]
    assert "data.validation_share" not in reasons(suggestion)


def test_very_little_data_and_very_long_runs_are_said():
    assert any("teach a form" in text for text in ask(H100, data=dataset(30, [(256, 30)])).warnings)
    assert any("hours" in text for text in ask(CPU_24, data=CHATS, model="Qwen/Qwen3-0.6B").warnings)
    assert any("No data" in text for text in ask(H100).warnings)


def test_checkpoints_come_about_every_ten_minutes_and_evaluations_about_ten_times():
    suggestion = ask(MACHINES["laptop_4060"], data=CHATS)
    recipe, plan = recipe_of(suggestion), suggestion.plan
    step_s = plan.seconds / plan.steps
    assert 300 < recipe.train.checkpoint_every * step_s < 1_200
    assert 8 <= plan.steps / recipe.evaluation.every <= 12
    short = recipe_of(ask(H100, data=TINY))
    assert short.train.checkpoint_every <= ask(H100, data=TINY).plan.steps / 2 + 1


def test_a_task_that_the_rows_show_is_scored_with_a_reason():
    keys = {"name": "string", "note": ""}
    hint = TaskHint(metric="json", rows=40, says="The rows' replies are JSON.", reply_tokens=30, schema_keys=keys)
    data = CHATS.model_copy(update={"report": DatasetReport(used_rows=40, task=hint)})
    suggestion = ask(CPU_16, LAPTOP, data)
    task = recipe_of(suggestion).task
    assert task.metric == "json"
    assert json.loads(task.json_schema)["required"] == ["name", "note"]
    assert 30 < task.max_tokens < 100
    assert hint.says in reasons(suggestion)["task.metric"]
    assert "task" in {part.name for part in suggestion.plan.times}
    assert recipe_of(ask(CPU_16, LAPTOP, CHATS)).task.metric == "none"


def test_rewards_get_a_score_a_graded_form_of_it_and_room_for_replies():
    report = DatasetReport(used_rows=1, task=TaskHint(metric="number", rows=60, says="Numbers.", reply_tokens=4))
    for data, metric, kinds in (
        (TINY.model_copy(update={"report": report}), "number", ["task", "distance"]),
        (TINY, "exact_match", ["task"]),
    ):
        recipe = recipe_of(ask(H100, data=data, objective="grpo"))
        assert recipe.preference.objective == "grpo"
        assert recipe.task.metric == metric
        assert [one.kind for one in recipe.reward] == kinds
        assert recipe.train.micro_batch_tokens > recipe.reinforce.max_tokens


def test_rows_with_room_for_replies_stay_within_the_models_context():
    lengths = TINY.lengths.model_copy(update={"p95": 8000, "longest": 8100})
    asked = ask(H100, data=TINY.model_copy(update={"lengths": lengths}), objective="grpo", model="embedded")
    assert recipe_of(asked).data.max_length == 8192
