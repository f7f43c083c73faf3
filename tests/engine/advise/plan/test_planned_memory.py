"""The memory plan of a planned run: what of the device and of the host it may take."""

import pytest

from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.calibrate import device_key
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.plan.planned_memory import choose_memory, host_budget
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection

from support.machines.made_up import cpu_machine, gpu_machine

GIB = 2**30
QWEN3_06B = shape("qwen3-0.6b")


def planned(machine, recipe=None, *, cuda=True):
    return PlannedRun(
        recipe or Recipe(), QWEN3_06B, machine, PlannedDevice(cuda, 0, "bf16"), EngineChoice(fast=True), None
    )


@pytest.mark.parametrize(("os", "share"), [
    ("Linux 6.1", 0.75), ("Windows 11", 0.5), ("Linux 5.15.167.4-microsoft-standard-WSL2", 0.5),
])  # fmt: skip
def test_windows_lends_a_gpu_half_of_the_memory(os, share):
    machine = gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB, ram=64 * GIB)
    machine = machine.model_copy(update={"os": os})
    assert host_budget(machine, machine.gpus[0]) == pytest.approx(share * 64 * GIB, rel=0.001)


def test_nothing_is_moved_where_memory_is_shared_or_there_is_no_gpu():
    shared = gpu_machine("NVIDIA GB10", 0, unified=True, ram=120 * GIB)
    assert host_budget(shared, shared.gpus[0]) == 0
    assert host_budget(cpu_machine(), None) == 0


def test_a_gpu_that_only_torch_sees_is_taken_for_a_slow_one():
    """The driver's library may be missing, or tell of other cards than those that torch may use."""
    for machine in (cpu_machine(), gpu_machine("NVIDIA GeForce RTX 4060", 8 * GIB)):
        run = PlannedRun(Recipe(), QWEN3_06B, machine, PlannedDevice(True, 1, "bf16"), EngineChoice(fast=True), None)
        choice = choose_memory(run, MicroBatchSize(2048, 1000), 7 * GIB)
        assert choice.run.cuda
        assert choice.run.gpu is None
        assert choice.locked_bytes == 0
        assert device_key(run) == "unknown GPU"


@pytest.mark.full
def test_host_memory_is_used_as_far_as_there_is_any():
    recipe = Recipe(train=TrainSection(micro_batch_tokens=16384))
    card = {"vram": 8 * GIB, "free": 7 * GIB}
    for ram in (3, 8, 64):
        plan = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4060", ram=ram * GIB, **card))
        assert plan.host_bytes <= ram * GIB
        assert not any("system memory" in problem for problem in plan.problems)
        assert (plan.locked_bytes == 0) == (ram == 3)
    shared = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GB10", 0, unified=True, ram=16 * GIB))
    assert shared.locked_bytes == 0


@pytest.mark.full
def test_a_narrow_fit_is_better_than_none():
    recipe = Recipe(train=TrainSection(micro_batch_tokens=16384))
    least = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, free=GIB))
    assert not least.fits
    free = least.memory_bytes + 270 * 2**20
    tight = plan_run(recipe, QWEN3_06B, gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, free=free))
    assert tight.fits
    assert tight.memory_bytes > tight.memory_budget_bytes
