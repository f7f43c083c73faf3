"""Plans of runs that train every weight: what does not fit, and what would; disk, host memory and speed."""

import pytest

from burnish_engine.advise.facts.shape import parameters
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.plan import plan_run, planned_device
from burnish_engine.advise.predict.plain.speed import plain_seconds
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, MaskingSection, TrainSection

from support.machines.made_up import cpu_machine, gpu_machine

GIB = 2**30
QWEN3_06B = DecoderSpec(
    family="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_heads=16, num_kv_heads=8,
    head_dim=128, layers=[LayerSpec()] * 28, max_context=40960, qk_norm=True, tied_embeddings=True,
)  # fmt: skip
CARD = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB)
SMALL = gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB)
WEIGHTS = parameters(QWEN3_06B)


def recipe(optimizer="adamw", method="full", **train):
    return Recipe(
        adapter=AdapterSection(method=method),
        train=TrainSection(optimizer=optimizer, engine="plain", **train),
        export=ExportSection(quants=[]),
    )


def parts(plan):
    return {part.name: part.bytes for part in plan.memory}


def test_every_weight_has_a_copy_a_master_a_gradient_and_moments():
    plan = plan_run(recipe(), QWEN3_06B, CARD)
    found = parts(plan)
    assert plan.trainable_parameters == WEIGHTS
    assert (found["base weights"], found["master weights"]) == (2 * WEIGHTS, 4 * WEIGHTS)
    assert found["optimizer"] == 8 * WEIGHTS
    assert plan.fits
    assert plan_run(recipe(accumulation=4), QWEN3_06B, CARD).memory_bytes > plan.memory_bytes


@pytest.mark.parametrize("gpus", [2, 4])
def test_shared_out_each_card_has_its_part_and_the_layers_at_work(gpus):
    alone = plan_run(recipe(), QWEN3_06B, CARD)
    devices = DevicesSection(strategy="sharded", gpus=list(range(gpus)))
    shared = plan_run(recipe().model_copy(update={"devices": devices}), QWEN3_06B, CARD)
    found, whole = parts(shared), parts(alone)
    assert found["base weights"] == 4 * WEIGHTS // gpus
    assert found["optimizer"] == whole["optimizer"] // gpus
    assert found["gradients"] == whole["gradients"] // gpus
    assert found["activations"] == whole["activations"]
    assert 0 < found["gathered weights"] < whole["master weights"]
    assert "master weights" not in found
    assert found["CUDA context"] > whole["CUDA context"], "NCCL has buffers of its own"
    assert shared.memory_bytes < alone.memory_bytes


def test_shared_out_a_small_model_stays_gathered_and_a_large_one_does_not():
    """Gathered weights stay for the backward pass where they take less than a quarter of the free memory."""
    devices = DevicesSection(strategy="sharded", gpus=[0, 1])
    found = [
        parts(plan_run(recipe().model_copy(update={"devices": devices}), QWEN3_06B, card))["gathered weights"]
        for card in (CARD, gpu_machine("NVIDIA GeForce RTX 3050", 4 * GIB))
    ]
    assert found[0] > 2 * WEIGHTS
    tables = QWEN3_06B.vocab_size * QWEN3_06B.hidden_size
    layers = (WEIGHTS - tables) // QWEN3_06B.num_layers
    assert found[0] - found[1] == 2 * (WEIGHTS - tables - 2 * layers)


def test_shared_out_the_activations_count_though_on_one_card_the_gradients_are_most():
    data, train = DataSection(max_length=512), recipe().train.model_copy(update={"micro_batch_tokens": 512})
    short = recipe().model_copy(update={"data": data, "train": train})
    devices = DevicesSection(strategy="sharded", gpus=[0, 1, 2, 3])
    shared = parts(plan_run(short.model_copy(update={"devices": devices}), QWEN3_06B, CARD))
    assert not parts(plan_run(short, QWEN3_06B, CARD))["activations"]
    assert shared["activations"] > 0
    assert shared["gradients"] < 4 * WEIGHTS // 4


def test_what_does_not_fit_is_told_with_what_takes_less():
    (problem,) = plan_run(recipe(), QWEN3_06B, SMALL).problems
    assert "training every weight takes" in problem
    assert 'Set adapter.method = "lora", or train.optimizer = "adamw8bit", or choose a smaller model.' in problem
    assert "adapter.rank" not in problem
    tight = gpu_machine("NVIDIA GeForce RTX 3050", 4 * GIB)
    (problem,) = plan_run(recipe("paged_adamw8bit"), QWEN3_06B, tight).problems
    assert 'Set adapter.method = "lora", or choose a smaller model.' in problem


def test_eight_bits_and_pages_take_less_of_the_card():
    taken = [plan_run(recipe(name), QWEN3_06B, CARD) for name in ("adamw", "adamw8bit", "paged_adamw8bit")]
    moments = [parts(plan)["optimizer"] for plan in taken]
    assert moments[0] / 3.8 > moments[1] > moments[2] * 2
    host = [plan.host_bytes for plan in taken]
    assert host[0] == host[1]
    assert host[2] - host[1] == pytest.approx(2 * WEIGHTS, rel=0.01)


def test_masking_takes_gradients_of_all_weights_at_once_and_a_librarys_way():
    section = MaskingSection(kind="magma")
    masked = {name: recipe(name).model_copy(update={"masking": section}) for name in ("adamw", "muon")}
    for name, one in masked.items():
        before, after = (parts(plan_run(asked, QWEN3_06B, CARD)) for asked in (recipe(name), one))
        assert after["gradients"] >= 4 * WEIGHTS >= before["gradients"]
        # Muon's way, of all weights, and places for a momentum that embeddings and norms do not have.
        without = 151936 * 1024 + 28 * (2 * 1024 + 2 * 128) + 1024
        assert after["optimizer"] - before["optimizer"] == (4 * (WEIGHTS + without) if name == "muon" else 0)


def test_while_they_move_into_one_buffer_masked_weights_are_there_twice():
    short = {"data": DataSection(max_length=64), "train": TrainSection(engine="plain", micro_batch_tokens=64)}
    small = Recipe.model_validate({**dict(recipe()), **short})
    masked = small.model_copy(update={"masking": MaskingSection(kind="magma")})
    found = parts(plan_run(masked, QWEN3_06B, CARD))
    assert found["workspace"] == 4 * WEIGHTS
    assert "workspace" not in parts(plan_run(small, QWEN3_06B, CARD))


def test_checkpoints_hold_weights_and_moments():
    full, eight, lora = (
        plan_run(recipe(*which), QWEN3_06B, CARD).disk_bytes
        for which in (("adamw",), ("adamw8bit",), ("adamw", "lora"))
    )
    kept = TrainSection().keep_checkpoints + 1
    assert full - lora > kept * 11 * WEIGHTS
    assert full - eight == pytest.approx(kept * 6 * WEIGHTS, rel=0.02)


@pytest.mark.parametrize("machine", [CARD, cpu_machine()], ids=["gpu", "cpu"])
def test_all_gradients_cost_more_than_an_adapter_s(machine):
    one, device = MicroBatchSize(2048, 1200), planned_device(recipe(), machine)
    seconds = [
        plain_seconds(recipe(name, micro_batch_tokens=2048), QWEN3_06B, one, machine, device)
        for name in ("adamw", "adamw8bit", "paged_adamw8bit")
    ]
    assert seconds[1] <= seconds[0] < 2 * seconds[1]
    if device.cuda:
        assert seconds[2] > seconds[1]
    else:  # on a card a pass so short takes what starting its kernels takes
        often = plain_seconds(recipe(accumulation=8), QWEN3_06B, one, machine, device)
        assert plain_seconds(recipe(method="lora"), QWEN3_06B, one, machine, device) < often < seconds[0]


def test_small_models_on_a_fast_card_take_what_the_processor_needs():
    """On an H100, steps of 5,120 tokens of 55M weights took 56 ms, of 4,096 of a Qwen3-0.6B 138: set on these two."""
    small = DecoderSpec(
        family="llama", vocab_size=49152, hidden_size=512, intermediate_size=1408, num_heads=8, num_kv_heads=4,
        head_dim=64, layers=[LayerSpec()] * 10, max_context=2048, tied_embeddings=True,
    )  # fmt: skip
    machine = gpu_machine("NVIDIA H100 80GB HBM3", 80 * GIB)
    for spec, tokens, measured in ((small, 5120, 0.056), (QWEN3_06B, 4096, 0.138)):
        asked = recipe(micro_batch_tokens=tokens)
        one = MicroBatchSize(tokens, tokens, longest=512, span=480.0)
        found = plain_seconds(asked, spec, one, machine, planned_device(asked, machine))
        assert found == pytest.approx(measured, rel=0.1)


def test_settings_without_effect_are_told():
    changed = recipe().model_copy(update={"adapter": AdapterSection(method="full", rank=8)})
    assert any("adapter.rank does not apply" in note for note in plan_run(changed, QWEN3_06B, CARD).notes)
    assert not any("apply" in note for note in plan_run(recipe(), QWEN3_06B, CARD).notes)
