"""Plans: what is counted, what is refused, and what a refusal tells."""

import pytest

from burnish_engine.advise.plan.memory_solver import usable_bytes
from burnish_engine.advise.plan.plan import plan_run, planned_device, refuse_unfit
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.errors import DoesNotFitError, ExitCode, NoSpaceError, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec, LayerSpec, LengthStats
from burnish_engine.contract.facts.machine import LinkFacts
from burnish_engine.contract.recipe.memory_plan import MemorySection
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection

from support.machines.made_up import cpu_machine, gpu_machine

GIB = 2**30
LLAMA_8B = DecoderSpec(
    family="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_heads=32, num_kv_heads=8,
    head_dim=128, layers=[LayerSpec()] * 32, max_context=131072,
)  # fmt: skip
QWEN3_06B = DecoderSpec(
    family="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_heads=16, num_kv_heads=8,
    head_dim=128, layers=[LayerSpec()] * 28, max_context=40960, qk_norm=True, tied_embeddings=True,
)  # fmt: skip

QWEN3_CONFIG = {
    "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip


def dataset(rows=1000, tokens=200_000, *, budget=2048, fill=0.95, learned=0.5):
    return DatasetFacts(
        files=["a.jsonl"], format="jsonl", shape="messages", columns=["messages"], rows=rows, train_rows=rows,
        validation_rows=0, tokens=tokens, supervised_tokens=int(tokens * learned),
        lengths=LengthStats(mean=tokens / rows, median=150, p95=600, longest=900),
        micro_batches=round(tokens / (budget * fill)), fill=fill,
        most_supervised=int(min(budget * 1.2, tokens) * learned),
    )  # fmt: skip


def test_the_parts_sum_up_to_the_peak():
    plan = plan_run(Recipe(), QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB))
    assert plan.memory_bytes == sum(part.bytes for part in plan.memory)
    assert plan.fits
    assert not plan.problems


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_an_estimate_of_the_divergence_takes_its_time(engine):
    def speed(**preference):
        recipe = Recipe(train=TrainSection(engine=engine), preference=PreferenceSection(**preference))
        return plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)).tokens_per_s

    usual = speed()
    assert speed(objective="kto", loss_type="apo_zero_unpaired") == usual
    assert 0.6 * usual < speed(objective="kto") < 0.8 * usual


@pytest.mark.full
def test_what_is_free_decides_not_what_is_built_in():
    recipe = Recipe()
    roomy = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, free=23 * GIB))
    crowded = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, free=1 * GIB))
    assert roomy.fits
    assert not crowded.fits
    assert "1.0 GiB is free" in crowded.problems[0]


@pytest.mark.full
def test_an_8b_in_16_bits_is_refused_on_8_gb_with_the_cause_and_a_way_out():
    """Where system memory has no room for its weights either."""
    plan = plan_run(Recipe(), LLAMA_8B, gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB, ram=12 * GIB))
    assert not plan.fits
    assert "base weights" in plan.problems[0]
    assert "smaller model" in plan.problems[0]
    assert "of system memory, where" not in plan.problems[0]  # there is no more to free
    with pytest.raises(DoesNotFitError) as caught:
        refuse_unfit(plan)
    assert caught.value.exit_code is ExitCode.DOES_NOT_FIT


@pytest.mark.full
def test_a_pass_that_is_too_large_is_told_apart_from_a_model_that_is():
    recipe = Recipe(train=TrainSection(micro_batch_tokens=300_000))
    plan = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB))
    assert "micro_batch_tokens" in plan.problems[0]
    assert "memory.layers" not in plan.problems[0]
    assert "recompute" not in plan.problems[0]


@pytest.mark.full
def test_the_advice_of_a_refusal_works():
    machine = gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB)
    recipe = Recipe(train=TrainSection(micro_batch_tokens=16384), memory=MemorySection(layers="products"))
    refused = plan_run(recipe, QWEN3_06B, machine, dataset=dataset(learned=0.9))
    assert not refused.fits
    assert 'memory.layers = "auto"' in refused.problems[0]
    chosen = Recipe(train=TrainSection(micro_batch_tokens=16384))
    assert plan_run(chosen, QWEN3_06B, machine, dataset=dataset(learned=0.9)).fits
    smaller = Recipe(data=DataSection(max_length=512), train=TrainSection(micro_batch_tokens=4096))
    smaller = smaller.model_copy(update={"memory": recipe.memory})
    assert plan_run(smaller, QWEN3_06B, machine, dataset=dataset(learned=0.9)).fits


def test_the_plain_engine_is_advised_to_recompute():
    machine = gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB)
    plain = {"micro_batch_tokens": 4096, "engine": "plain"}
    refused = plan_run(Recipe(train=TrainSection(**plain)), QWEN3_06B, machine)
    assert "train.recompute = true" in refused.problems[0]
    assert refused.memory_plan is None


@pytest.mark.full
def test_a_plan_uses_what_is_free_and_says_how():
    recipe = Recipe(train=TrainSection(micro_batch_tokens=16384))
    large, small = (
        plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, free=free * GIB))
        for free in (23, 6)
    )
    for plan in (large, small):
        assert plan.fits
        assert plan.memory_bytes <= plan.memory_budget_bytes < 0.95 * plan.memory_free_bytes
        assert plan.memory_budget_bytes == usable_bytes(plan.memory_free_bytes, cuda=True)
        assert len(plan.memory_plan.layers) == 28
        kept = next(part.note for part in plan.memory if part.name == "activations")
        assert all(f"{plan.memory_plan.layers.count(level)} {level}" in kept for level in plan.memory_plan.layers)
        assert plan.host_bytes - plan.locked_bytes == 2 * GIB
    assert large.tokens_per_s > small.tokens_per_s
    assert {"offloaded", "host"} & set(small.memory_plan.layers)
    assert small.locked_bytes > large.locked_bytes


@pytest.mark.full
def test_a_budget_of_the_recipe_is_kept():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)

    def planned(gib):
        recipe = Recipe(train=TrainSection(micro_batch_tokens=16384), memory=MemorySection(budget_gib=gib))
        return plan_run(recipe, QWEN3_06B, machine)

    assert planned(5).memory_bytes <= planned(5).memory_budget_bytes == 5 * GIB
    assert planned(5).fits
    assert not planned(1.5).fits
    assert "memory.budget_gib allows 1.5 GiB" in planned(1.5).problems[0]
    assert planned(100).memory_bytes <= 24 * GIB
    assert planned(100).fits


def test_a_budget_is_kept_where_every_weight_is_trained_too():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)

    def planned(gib, *, recompute=False):
        train = TrainSection(micro_batch_tokens=4096, recompute=recompute)
        recipe = Recipe(adapter=AdapterSection(method="full"), train=train, memory=MemorySection(budget_gib=gib))
        return plan_run(recipe, QWEN3_06B, machine)

    need = planned(0).memory_bytes / GIB
    assert planned(0).fits
    assert planned(need + 0.5).fits
    refused = planned(need - 0.5)
    assert not refused.fits
    assert "train.recompute" in refused.problems[0]
    assert planned(need - 0.5, recompute=True).fits
    assert "train.recompute" not in planned(3, recompute=True).problems[0]


@pytest.mark.full
def test_4_bits_are_advised_only_where_they_help():
    passes = {"data": DataSection(max_length=512), "train": TrainSection(micro_batch_tokens=512, recompute=True)}
    whole, packed = (Recipe(model=ModelSection(quantize=kind), **passes) for kind in ("none", "nf4"))
    card = gpu_machine("NVIDIA GeForce RTX 4070", 12 * GIB, ram=8 * GIB)
    small = gpu_machine("NVIDIA GeForce RTX 3050", 4 * GIB, ram=16 * GIB)  # with weights in system memory
    for machine in (card, small):
        assert 'model.quantize = "nf4"' in plan_run(whole, LLAMA_8B, machine).problems[0]
        assert plan_run(packed, LLAMA_8B, machine).fits
    for hopeless in (gpu_machine("NVIDIA GeForce RTX 3050", 4 * GIB, ram=8 * GIB), cpu_machine(ram=8 * GIB)):
        assert "nf4" not in plan_run(whole, LLAMA_8B, hopeless).problems[0]
    plain = whole.model_copy(update={"train": whole.train.model_copy(update={"engine": "plain"})})
    assert "nf4" not in plan_run(plain, LLAMA_8B, card).problems[0]


@pytest.mark.full
def test_weights_in_system_memory_make_large_models_fit_and_what_lacks_of_it_is_told():
    nf4 = Recipe(model=ModelSection(quantize="nf4"))
    card = gpu_machine("NVIDIA GeForce RTX 3050", 4 * GIB)
    plan = plan_run(nf4, LLAMA_8B, card)
    assert plan.fits
    hosted = len(plan.memory_plan.layers_on_host)
    assert hosted > 16
    assert plan.locked_bytes > hosted * 110 * 2**20
    assert f"{hosted} of 32 layers in host memory" in plan.memory[0].note
    assert any(part.name == "streamed weights" for part in plan.memory)
    busy = plan_run(nf4, LLAMA_8B, card.model_copy(update={"ram_free_bytes": 6 * GIB}))
    assert not busy.fits
    assert "of system memory, where weights of layers can be" in busy.problems[0]
    there = nf4.model_copy(update={"memory": MemorySection(weights="card")})
    assert 'memory.weights = "auto"' in plan_run(there, LLAMA_8B, card).problems[0]


@pytest.mark.parametrize("peer_gb_s", [0.0, 300.0])
def test_gpus_that_read_each_other_share_what_none_holds(peer_gb_s):
    """A 70B in 4 bits on two cards of 40 GiB: where they cannot, no card has room and there is no host memory."""
    nf4 = Recipe(
        model=ModelSection(quantize="nf4"),
        train=TrainSection(micro_batch_tokens=1024, accumulation=2),
        data=DataSection(max_length=512),
        devices=DevicesSection(strategy="data_parallel", gpus=[0, 1]),
    )
    machine = gpu_machine("NVIDIA A100-SXM4-40GB", 40 * GIB, ram=8 * GIB, count=2, capability=(8, 0))
    links = [LinkFacts(first=0, second=1, nvlinks=4, nvlink_gb_s=peer_gb_s)] if peer_gb_s else []
    machine = machine.model_copy(update={"links": links, "disk_free_bytes": 1 << 40})
    plan = plan_run(nf4, shape("llama-3.1-70b"), machine)
    assert plan.fits == bool(peer_gb_s)
    if not peer_gb_s:
        return
    shared = len(plan.memory_plan.layers_on_ranks)
    assert shared > 40
    parts = {part.name: part.bytes for part in plan.memory}
    assert parts["shared weights"] > parts["streamed weights"]
    assert sum(parts.values()) <= 40 * GIB
    assert f"{shared} layers shared" in plan.memory[0].note
    assert any("read them from each other" in note for note in plan.notes)
    alone = nf4.model_copy(update={"devices": DevicesSection()})
    assert not plan_run(alone, shape("llama-3.1-70b"), machine).fits


def test_the_engine_decides_what_a_run_takes():
    card = gpu_machine("NVIDIA H100 80GB HBM3", 80 * GIB)
    recipe = Recipe(train=TrainSection(micro_batch_tokens=4096))
    fast = plan_run(recipe, QWEN3_06B, card)
    plain = plan_run(Recipe(train=TrainSection(micro_batch_tokens=4096, engine="plain")), QWEN3_06B, card)
    dora = plan_run(recipe.model_copy(update={"adapter": AdapterSection(method="dora")}), QWEN3_06B, card)
    assert fast.tokens_per_s > 5 * plain.tokens_per_s
    assert fast.memory_bytes < plain.memory_bytes / 2
    assert fast.host_bytes < plain.host_bytes
    assert not any("engine" in note for note in [*fast.notes, *plain.notes])
    assert fast.memory_bytes < dora.memory_bytes < plain.memory_bytes
    assert plain.tokens_per_s < dora.tokens_per_s < fast.tokens_per_s
    assert dora.notes == fast.notes


@pytest.mark.full
def test_recompute_and_4_bits_cost_speed():
    card = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    base = {"micro_batch_tokens": 4096}
    usual = plan_run(Recipe(train=TrainSection(**base)), QWEN3_06B, card)
    again = plan_run(Recipe(train=TrainSection(**base, recompute=True)), QWEN3_06B, card)
    packed = plan_run(Recipe(train=TrainSection(**base), model=ModelSection(quantize="nf4")), QWEN3_06B, card)
    exact = plan_run(Recipe(train=TrainSection(**base, precision="fp32")), QWEN3_06B, card)
    half = plan_run(Recipe(train=TrainSection(**base, precision="fp16")), QWEN3_06B, card)
    assert 0.65 < again.tokens_per_s / usual.tokens_per_s < 0.9
    assert 0.85 < packed.tokens_per_s / usual.tokens_per_s < 1.0
    assert exact.tokens_per_s < usual.tokens_per_s / 3
    assert half.tokens_per_s == usual.tokens_per_s
    assert half.memory_bytes == usual.memory_bytes


def test_4_bits_on_a_processor_are_allowed_and_called_slow():
    whole = plan_run(Recipe(), QWEN3_06B, cpu_machine())
    packed = plan_run(Recipe(model=ModelSection(quantize="nf4")), QWEN3_06B, cpu_machine())
    assert packed.memory_bytes < whole.memory_bytes
    assert packed.tokens_per_s < whole.tokens_per_s
    assert any("slow" in note for note in packed.notes)


@pytest.mark.full
def test_a_checkpoint_stored_in_4_bits_is_planned_so():
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    config = {**QWEN3_CONFIG, "quantization_config": stored}
    card = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    asked = plan_run(Recipe(model=ModelSection(quantize="nf4")), QWEN3_06B, card)
    assert plan_run(Recipe(), QWEN3_06B, card, config=config).memory == asked.memory
    whole = plan_run(Recipe(), QWEN3_06B, card, config=QWEN3_CONFIG)
    assert whole.memory_bytes > asked.memory_bytes


def test_steps_and_tokens_follow_from_the_dataset():
    recipe = Recipe(train=TrainSection(epochs=3.0, accumulation=2))
    plan = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB), dataset=dataset())
    assert plan.steps == pytest.approx(200_000 * 3 / (2048 * 0.95 * 2), rel=0.02)
    assert plan.tokens == pytest.approx(600_000, rel=0.02)
    assert plan.seconds == pytest.approx(plan.tokens / plan.tokens_per_s)


@pytest.mark.full
def test_a_pass_is_never_larger_than_the_dataset():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    found = dataset(rows=20, tokens=3_000, budget=100_000, fill=0.03)
    plan = plan_run(Recipe(train=TrainSection(micro_batch_tokens=100_000)), QWEN3_06B, machine, dataset=found)
    roomy = plan_run(Recipe(train=TrainSection(micro_batch_tokens=3_000)), QWEN3_06B, machine, dataset=found)
    assert plan.fits
    assert plan.memory_bytes == pytest.approx(roomy.memory_bytes, rel=0.1)


def test_a_limit_of_steps_limits_tokens_and_time():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    free = plan_run(Recipe(), QWEN3_06B, machine, dataset=dataset())
    limited = plan_run(Recipe(train=TrainSection(max_steps=5)), QWEN3_06B, machine, dataset=dataset())
    assert limited.steps == 5
    assert limited.tokens < free.tokens
    assert limited.seconds < free.seconds


def test_facts_found_with_another_budget_are_scaled():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    found = dataset(budget=2048)
    small = plan_run(Recipe(), QWEN3_06B, machine, dataset=found)
    recipe = Recipe(train=TrainSection(micro_batch_tokens=4096))
    large = plan_run(recipe, QWEN3_06B, machine, dataset=found)
    assert large.steps == pytest.approx(small.steps / 2, rel=0.05)
    assert large.memory_bytes > small.memory_bytes * 1.3


@pytest.mark.full
def test_rows_are_packed_again_for_another_budget():
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    known = dataset(rows=1_000, tokens=1_100_000, budget=16_384, fill=0.97)
    lengths = LengthStats(mean=1100, median=1100, p95=1100, longest=1100, sample=[1100] * 1_000)
    found = known.model_copy(update={"lengths": lengths})

    def steps(budget):
        train = TrainSection(micro_batch_tokens=budget, accumulation=1, epochs=1.0)
        recipe = Recipe(data=DataSection(max_length=2_048), train=train)
        return plan_run(recipe, QWEN3_06B, machine, dataset=found).steps

    assert steps(16_384) == pytest.approx(1_100_000 / (16_384 * 0.97), rel=0.02), "as the inspection found"
    assert steps(2_048) == pytest.approx(1_000, rel=0.01), "no two rows fit into one"


@pytest.mark.parametrize("longer", [0.99, 1.01])
def test_the_micro_batches_that_an_inspection_counted_are_planned_although_held_out_rows_differ_in_length(longer):
    train = TrainSection(micro_batch_tokens=2_048, accumulation=1, epochs=1.0)
    found = dataset(rows=1_000, tokens=round(200_000 * longer), budget=2_048, fill=0.95)
    found = found.model_copy(update={"micro_batches": 103})
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
    assert plan_run(Recipe(train=train), QWEN3_06B, machine, dataset=found).steps == 103


def test_without_a_dataset_time_stays_unknown():
    plan = plan_run(Recipe(), QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB))
    assert plan.seconds is None
    assert any("not looked at" in note for note in plan.notes)


@pytest.mark.full
def test_a_slower_card_is_predicted_slower():
    recipe = Recipe(train=TrainSection(micro_batch_tokens=4096))
    fast = plan_run(recipe, LLAMA_8B, gpu_machine("NVIDIA H100 80GB HBM3", 80 * GIB))
    slow = plan_run(recipe, LLAMA_8B, gpu_machine("NVIDIA GeForce RTX 3090", 24 * GIB))
    assert fast.tokens_per_s > 2 * slow.tokens_per_s


def test_training_is_not_refused_because_an_export_would_not_fit():
    machine = gpu_machine("NVIDIA H100 80GB HBM3", 80 * GIB).model_copy(update={"disk_free_bytes": 26 * 10**9})
    plan = plan_run(Recipe(), LLAMA_8B, machine)
    assert plan.fits
    assert plan.disk_bytes < 2e9
    assert plan.export_disk_bytes > 26e9
    [note] = [note for note in plan.notes if "export.quants" in note]
    assert "Q8_0" in note
    without = plan_run(Recipe(export=ExportSection(quants=[])), LLAMA_8B, machine)
    assert without.export_disk_bytes == 0
    assert not any("export.quants" in note for note in without.notes)
    roomy = plan_run(Recipe(), LLAMA_8B, machine.model_copy(update={"disk_free_bytes": 10**12}))
    assert not any("export.quants" in note for note in roomy.notes)


def test_a_download_that_fills_the_disk_is_named():
    full = cpu_machine(disk=100 * 2**20)
    known, here = (plan_run(Recipe(), QWEN3_06B, full, download_bytes=size).problems[-1] for size in (10**9, 0))
    assert "download (1.00 GB)" in known
    assert "download" not in here


def test_full_disk_is_a_problem():
    machine = cpu_machine(disk=100 * 2**20)
    plan = plan_run(Recipe(), QWEN3_06B, machine)
    assert not plan.fits
    assert any("disk" in problem for problem in plan.problems)
    with pytest.raises(NoSpaceError, match="disk"):
        refuse_unfit(plan)


def test_unified_memory_is_the_systems_memory():
    machine = gpu_machine("NVIDIA GB10", 0, unified=True, ram=120 * GIB)
    plan = plan_run(Recipe(), LLAMA_8B, machine)
    assert plan.memory_total_bytes == 120 * GIB


@pytest.mark.parametrize(
    ("kind", "capability", "precision", "expected"),
    [
        ("auto", (8, 9), "auto", (True, "bf16")),
        ("auto", (7, 5), "auto", (True, "fp32")),
        ("cpu", (8, 9), "auto", (False, "fp32")),
        ("auto", (8, 9), "fp32", (True, "fp32")),
    ],
)
def test_device_and_precision_are_chosen_as_training_does(kind, capability, precision, expected):
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, capability=capability)
    recipe = Recipe(devices=DevicesSection(kind=kind), train=TrainSection(precision=precision))
    device = planned_device(recipe, machine)
    assert (device.cuda, device.precision) == expected


def test_blocks_of_8_bits_are_planned_for_their_cards_and_called_unmeasured():
    recipe = Recipe(train=TrainSection(products="mxfp8"))
    found = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 5090", 32 * GIB, capability=(12, 0)))
    assert any("MXFP8" in note for note in found.notes)
    plain = plan_run(Recipe(), QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 5090", 32 * GIB, capability=(12, 0)))
    assert not any("MXFP8" in note for note in plain.notes)
    assert found.memory_bytes < plain.memory_bytes
    with pytest.raises(UsageError, match="RTX 50"):
        plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB))


@pytest.mark.parametrize(("name", "timed"), [("qwen3-0.6b", True), ("olmoe-1b-7b", False)])
def test_a_plan_says_that_products_are_timed_but_not_of_a_mixture_which_stays_in_16_bits(name, timed):
    recipe = Recipe(train=TrainSection(products="auto"))
    found = plan_run(recipe, shape(name), gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB))
    assert any("products" in note for note in found.notes) is timed


def test_a_gpu_that_is_not_there_is_named():
    recipe = Recipe(devices=DevicesSection(gpus=[3]))
    with pytest.raises(UsageError, match="GPU 3"):
        plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB))


def test_replies_that_are_learned_from_take_their_time_and_steps_follow_from_prompts():
    def planned(updates=1, **reinforce):
        document = Recipe().model_dump()
        document["preference"]["objective"] = "grpo"
        document["task"]["metric"] = "number"
        document["reinforce"] |= {"groups": 8, "replies": 8, "max_tokens": 64, "updates": updates, **reinforce}
        document["evaluation"]["every"] = 100
        recipe = Recipe.model_validate(document)
        plan = plan_run(recipe, QWEN3_06B, cpu_machine(), dataset=dataset(rows=400, tokens=40_000, learned=0.1))
        return plan, {part.name: part for part in plan.times}

    plan, times = planned()
    assert plan.steps == 2 * 400 / 8  # two epochs
    assert plan.tokens == plan.steps * 64 * (90 + 20)  # replies twice as long as the rows' own
    assert times["replies"].count == 100
    assert times["replies"].seconds > 0
    again, several = planned(updates=2)
    assert (again.steps, several["replies"].count) == (200, 100)
    assert several["replies"].seconds > times["replies"].seconds  # the probabilities as they were written
    assert planned(max_tokens=16)[1]["replies"].seconds < times["replies"].seconds


def test_rows_that_the_base_writes_take_time_before_the_first_step_and_steps():
    def planned(share):
        document = Recipe().model_dump()
        document["data"]["replay_share"] = share
        recipe = Recipe.model_validate(document)
        return plan_run(recipe, QWEN3_06B, cpu_machine(), dataset=dataset(rows=400, tokens=40_000, learned=0.1))

    plans = [planned(share) for share in (0.0, 0.05, 0.2)]
    seconds = [sum(part.seconds for part in plan.times if part.name == "replay") for plan in plans]
    assert seconds[0] == 0 < seconds[1] < seconds[2]
    assert plans[0].tokens < plans[1].tokens < plans[2].tokens
    assert plans[0].steps < plans[2].steps
