"""Past runs correct what is not counted, and the speed; never what is counted."""

from dataclasses import replace

import pytest

from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.past_runs import PastRun, remember
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.plan.calibrate import (
    Calibration,
    calibration,
    correct_parts,
    correct_prediction,
    device_key,
    kind_of,
    room_for_prediction,
)
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.facts.advice import MemoryPart
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.contract.version import burnish_version

from support.machines.made_up import cpu_machine, gpu_machine

MIB, GIB = 2**20, 2**30
SPEC = DecoderSpec(
    family="llama", vocab_size=128, hidden_size=64, intermediate_size=128, num_heads=4, num_kv_heads=4, head_dim=16,
    layers=[LayerSpec()], max_context=128,
)  # fmt: skip
QWEN3_06B = DecoderSpec(
    family="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_heads=16, num_kv_heads=8,
    head_dim=128, layers=[LayerSpec()] * 28, max_context=40960, qk_norm=True, tied_embeddings=True,
)  # fmt: skip
CARD = "NVIDIA GeForce RTX 4060"
PARTS = {"base weights": 2 * GIB, "activations": 4 * GIB, "allocator": 100 * MIB, "CUDA context": 760 * MIB}
HELD = PARTS["base weights"] + PARTS["activations"] + PARTS["allocator"]


def planned(machine=None, *, fast=True, nf4=False, precision="bf16"):
    machine = machine or gpu_machine(CARD, 8 * GIB)
    device = PlannedDevice(cuda=bool(machine.gpus), index=0, precision=precision)
    return PlannedRun(Recipe(), SPEC, machine, device, EngineChoice(fast=fast, nf4=nf4), None)


def parts(sizes=None):
    return [MemoryPart(name=name, bytes=size, note="n") for name, size in (sizes or PARTS).items()]


def past(when, *, held=1.0, beside=760 * MIB, speed=1.0, **changes):
    """A run that held that share of the prediction, that much beside torch, and was that much faster."""
    reserved = round(HELD * held)
    known = {
        "when": when, "burnish": burnish_version(), "device": device_key(planned()), "engine": "fast", "kind": "bf16",
        "memory": PARTS, "tokens_per_s": 1000.0, "process_bytes": reserved + beside,
        "allocated_bytes": 6 * GIB, "reserved_bytes": reserved, "measured_tokens_per_s": 1000.0 * speed, "steps": 20,
    }  # fmt: skip
    remember(PastRun(**known | changes))


def total(made):
    return sum(part.bytes for part in made)


def test_one_run_of_another_shape_is_not_enough():
    past(1, held=1.1, speed=0.5, tokens_per_s=2000.0)
    made = correct_prediction(planned(), parts(), 1000.0)
    assert made.parts == parts()
    assert made.tokens_per_s == 1000.0
    assert made.basis.runs == 0
    assert not made.notes


def test_the_last_run_of_the_same_shape_tells_the_speed_and_that_is_said():
    """A busy machine is a busy machine: predicting what it did not reach would be wrong the next time too."""
    times = {"checks": (2.0, 30.0), "loading": (0.0, 12.0), "saves": (0.0, 1.0)}
    past(1, speed=0.06, times=times)
    made = correct_prediction(planned(), parts(), 1020.0)
    assert made.tokens_per_s == pytest.approx(61.2)
    assert made.found.times == {"checks": 15.0}
    assert made.found.loading_s == 12.0
    assert made.parts == parts(), "one run is too little for the memory"
    (note,) = made.notes
    assert "61 tokens/s" in note
    past(2, speed=0.5)
    assert correct_prediction(planned(), parts(), 1000.0).tokens_per_s == 500.0


def test_two_correct_memory_and_speed_and_it_is_said():
    for when in (1, 2):
        past(when, held=1.05, beside=400 * MIB, tokens_per_s=2000.0)
    made = correct_prediction(planned(), parts(), 1000.0)
    sizes = {part.name: part.bytes for part in made.parts}
    assert total(made.parts) == pytest.approx(HELD * 1.05 + 400 * MIB, abs=2)
    assert sizes["CUDA context"] == 400 * MIB
    assert (sizes["base weights"], sizes["activations"]) == (2 * GIB, 4 * GIB)
    assert made.tokens_per_s == 500.0
    (note,) = made.notes
    assert all(figure in note for figure in ("2 runs", "memory -1 %", "speed -50 %"))


def test_the_basis_is_the_prediction_before_so_that_corrections_do_not_pile_up():
    for when in (1, 2):
        past(when, held=1.05, speed=0.5)
    basis = correct_prediction(planned(), parts(), 1000.0).basis
    assert basis.memory == PARTS
    assert basis.tokens_per_s == 1000.0
    assert (basis.engine, basis.kind, basis.runs) == ("fast", "bf16", 2)


@pytest.mark.parametrize("held", [0.1, 0.5, 0.9, 0.99])
def test_counted_tensors_are_never_undercut(held):
    for when in (1, 2, 3):
        past(when, held=held, beside=200 * MIB)
    made = {part.name: part.bytes for part in correct_prediction(planned(), parts(), 1.0).parts}
    assert made["base weights"] + made["activations"] + made["allocator"] >= 6 * GIB
    assert made["allocator"] >= 0


def test_what_is_out_of_range_is_clamped():
    for when in (1, 2, 3):
        past(when, held=9.0, beside=30 * GIB, speed=1000.0)
    made = correct_prediction(planned(), parts(), 1000.0)
    assert made.tokens_per_s == 5000.0
    assert total(made.parts) <= 1.5 * HELD + 3 * GIB + 2


def test_a_single_odd_run_moves_nothing():
    for when, held, speed in ((1, 1.02, 0.8), (2, 1.4, 0.01), (3, 1.02, 0.8)):
        past(when, held=held, speed=speed)
    found = calibration(device_key(planned()), "fast", "bf16")
    assert found.held == pytest.approx(1.02)
    assert found.speed == pytest.approx(0.8)


def test_new_runs_count_more_than_old_ones():
    for when in range(10):
        past(when, held=1.01, speed=0.5)
    for when in range(10, 15):
        past(when, held=1.2, speed=2.0)
    found = calibration(device_key(planned()), "fast", "bf16")
    assert (found.held, found.speed) == (pytest.approx(1.2), pytest.approx(2.0))


@pytest.mark.parametrize(
    "changes",
    [{"device": "another"}, {"engine": "plain"}, {"burnish": "0.0.1"}],
    ids=["device", "engine", "version"],
)
def test_only_what_is_comparable_counts(changes):
    for when in (1, 2, 3):
        past(when, held=1.2, speed=0.5, **changes)
    assert calibration(device_key(planned()), "fast", "bf16") == Calibration()


def test_memory_may_come_from_another_kind_and_speed_never():
    for when in (1, 2):
        past(when, held=1.1, speed=0.5, kind="nf4 bf16")
    found = calibration(device_key(planned()), "fast", "bf16")
    assert found.held == pytest.approx(1.1)
    assert (found.memory_runs, found.speed_runs, found.speed) == (2, 0, 1.0)
    for when in (3, 4):
        past(when, held=1.3, speed=0.9)
    own = calibration(device_key(planned()), "fast", "bf16")
    assert own.held == pytest.approx(1.3)
    assert own.speed == pytest.approx(0.9)


def test_a_run_of_too_few_steps_says_nothing_of_speed():
    for when in (1, 2, 3):
        past(when, measured_tokens_per_s=None)
    found = calibration(device_key(planned()), "fast", "bf16")
    assert (found.memory_runs, found.speed_runs) == (3, 0)


def test_without_the_drivers_figure_the_context_stays_as_predicted():
    for when in (1, 2):
        past(when, held=1.1, process_bytes=0)
    made = {part.name: part.bytes for part in correct_prediction(planned(), parts(), 1.0).parts}
    assert made["CUDA context"] == 760 * MIB
    assert made["allocator"] == pytest.approx(HELD * 1.1 - 6 * GIB, abs=2)


def test_on_a_processor_the_whole_process_is_compared():
    machine = cpu_machine()
    sizes = {"base weights": GIB, "activations": GIB, "allocator": 100 * MIB, "libraries": 600 * MIB}
    for when in (1, 2):
        past(
            when, device=device_key(planned(machine)), kind="fp32", memory=sizes, allocated_bytes=0, reserved_bytes=0,
            process_bytes=round(0.9 * sum(sizes.values())),
        )  # fmt: skip
    made = correct_prediction(planned(machine, precision="fp32"), parts(sizes), 1.0).parts
    assert total(made) == pytest.approx(0.9 * sum(sizes.values()), abs=2)
    assert {part.name: part.bytes for part in made}["activations"] == GIB


def test_a_prediction_without_a_part_for_it_gets_one():
    sizes = {"base weights": GIB, "CUDA context": 760 * MIB}
    made = correct_parts(parts(sizes), Calibration(memory_runs=2, held=1.1))
    assert total(made) == pytest.approx(1.1 * GIB + 760 * MIB, abs=2)
    assert correct_parts(parts(sizes), Calibration(memory_runs=2, held=0.9)) == parts(sizes)


@pytest.mark.parametrize("held", [0.9, 1.0, 1.2])
def test_what_fits_before_the_correction_fits_after_it(held):
    room, beside = 7 * GIB, PARTS["CUDA context"]
    assert room_for_prediction(planned(), room, beside) == room
    for when in (1, 2):
        past(when, held=held, beside=400 * MIB)
    before = room_for_prediction(planned(), room, beside)
    sizes = {**PARTS, "activations": 0}
    sizes["activations"] = before - sum(sizes.values())
    after = total(correct_prediction(planned(), parts(sizes), 1.0).parts)
    assert after <= room
    assert after == pytest.approx(room, rel=1e-6 if held >= 1 else 0.03)
    assert room_for_prediction(planned(), 100 * MIB, beside) == beside


def test_a_processors_room_too():
    machine = cpu_machine()
    for when in (1, 2):
        past(
            when,
            device=device_key(planned(machine)),
            kind="bf16",
            reserved_bytes=0,
            memory={"a": 100},
            process_bytes=110,
        )
    assert room_for_prediction(planned(machine), 11_000, 0) == pytest.approx(10_000, abs=1)


def test_a_kind_is_what_is_computed_and_trained():
    whole = replace(planned(), recipe=Recipe(adapter=AdapterSection(method="full")))
    paged = replace(planned(fast=False), recipe=Recipe(train=TrainSection(optimizer="paged_adamw8bit")))
    kinds = [kind_of(run) for run in (planned(), planned(nf4=True), whole, paged)]
    assert kinds == ["bf16", "nf4 bf16", "full bf16", "bf16 paged"]


def test_a_paged_optimizer_says_nothing_of_other_runs():
    for when in (1, 2):
        past(when, held=1.3, kind="bf16 paged")
    assert calibration(device_key(planned()), "fast", "bf16") == Calibration()
    assert calibration(device_key(planned()), "fast", "bf16 paged").held == pytest.approx(1.3)


def test_a_device_is_named_by_what_it_is():
    assert device_key(planned()) == "NVIDIA GeForce RTX 4060, 8 GiB"
    assert device_key(planned(cpu_machine())) == "CPU: made up, 8 cores"


@pytest.mark.full
@pytest.mark.parametrize(("held", "beside"), [(1.1, 760 * MIB), (1.0, 300 * MIB)])
def test_the_mix_is_chosen_for_what_a_run_will_really_take(held, beside):
    """Runs that take more than predicted keep less; a smaller context leaves more to keep."""
    machine = gpu_machine(CARD, 8 * GIB)
    recipe = Recipe(train=TrainSection(micro_batch_tokens=16384))
    before = plan_run(recipe, QWEN3_06B, machine)
    assert len(set(before.memory_plan.layers)) > 1, "a tight card, else there is nothing to choose"
    for when in (1, 2):
        past(when, held=held, beside=beside, kind=before.basis.kind)
    after = plan_run(recipe, QWEN3_06B, machine)
    assert after.fits
    assert after.memory_bytes <= after.memory_budget_bytes + MIB
    assert after.memory_bytes > 0.93 * after.memory_budget_bytes
    more = sum(after.basis.memory.values()) - sum(before.basis.memory.values())
    assert more < -200 * MIB if held > 1 else more > 200 * MIB


def test_plans_are_corrected_and_say_so():
    machine = gpu_machine(CARD, 8 * GIB)
    before = plan_run(Recipe(), QWEN3_06B, machine)
    assert before.basis is not None
    assert before.basis.runs == 0
    assert before.basis.memory == {part.name: part.bytes for part in before.memory}
    for when in (1, 2):
        held = sum(size for name, size in before.basis.memory.items() if name != "CUDA context")
        past(
            when, kind=before.basis.kind, memory=before.basis.memory, tokens_per_s=before.tokens_per_s,
            reserved_bytes=round(1.1 * held), process_bytes=round(1.1 * held) + 500 * MIB,
            measured_tokens_per_s=before.tokens_per_s / 2,
        )  # fmt: skip
    after = plan_run(Recipe(), QWEN3_06B, machine)
    assert after.memory_bytes == pytest.approx(1.1 * held + 500 * MIB, abs=2) == sum(p.bytes for p in after.memory)
    assert after.tokens_per_s == pytest.approx(before.tokens_per_s / 2)
    assert "last run" in after.speed_source
    assert any("Calibrated by 2 runs on this device" in note for note in after.notes)
    assert after.basis.memory == before.basis.memory
    assert plan_run(Recipe(), QWEN3_06B, gpu_machine(CARD, 16 * GIB)).memory_bytes == before.memory_bytes
