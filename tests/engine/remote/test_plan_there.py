"""Plans of runs on other machines: which of them have the GPUs that are wanted, how these share a step, and prices."""

import pytest

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.on_gpus import recipe_there
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.remote.backends.backend import Offer
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.backends.slurm import sbatch_script
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.plan_there import choose, place_offers, plan_there

from support.runs.tiny_runs import tiny_recipe


def recipe(where="hf", accumulation=4, adapter=None, **devices):
    return Recipe(
        model=ModelSection(path="Qwen/Qwen3-1.7B"),
        data=DataSection(max_length=1024),
        train=TrainSection(micro_batch_tokens=2048, accumulation=accumulation, max_steps=1000, max_tokens=8_000_000),
        adapter=adapter or AdapterSection(),
        devices=DevicesSection(where=where, **devices),
    )


def offer(count, gpu="RTX 3090", usd_per_hour=None):
    return Offer(f"{gpu} x{count}", service_machine(gpu, count, disk_gb=2000), usd_per_hour=usd_per_hour, gpus=count)


@pytest.mark.full
def test_more_gpus_take_less_time_each_of_their_passes_and_the_price_of_all():
    four = offer(4, usd_per_hour=8.0)
    alone, shared = (plan_there(recipe(), [four], gpus=gpus)[0] for gpus in (1, 4))
    assert (alone.used_gpus, shared.used_gpus) == (1, 4)
    assert shared.plan.shared.passes == 1
    assert shared.plan.shared.exchange_ms > 0
    assert 3 < shared.plan.tokens_per_s / alone.plan.tokens_per_s < 4
    found = place_offers("hf", [alone, shared])
    hours = [one.plan.total_seconds / 3600 for one in found.offers]
    assert [one.usd for one in found.offers] == [pytest.approx(8.0 * hour) for hour in hours]
    assert found.best.used_gpus == 4  # the same machine for less time


@pytest.mark.full
def test_a_machine_of_many_gpus_is_taken_only_where_it_is_cheaper():
    offers = [offer(1, usd_per_hour=1.0), offer(4, usd_per_hour=4.5)]
    assert choose(plan_there(recipe(), offers)).offer.gpus == 1
    assert choose(plan_there(recipe(), offers, gpus=4)).offer.gpus == 4


def test_a_card_that_cannot_do_what_the_recipe_asks_for_leaves_the_others():
    packed = recipe().model_copy(update={"model": ModelSection(path="Qwen/Qwen3-1.7B", quantize="nf4")})
    old = offer(1, "T4", usd_per_hour=0.1)
    assert [one.offer.gpus for one in plan_there(packed, [old, offer(2)])] == [2]
    with pytest.raises(UsageError, match="T4"):
        plan_there(packed, [old])


def test_a_whole_model_is_shared_out_there_as_here():
    whole = recipe(adapter=AdapterSection(method="full"))
    assert not plan_there(whole, [offer(4)])[0].plan.fits
    there = plan_there(whole, [offer(4)], gpus=4)[0]
    assert there.plan.fits
    assert any(part.name == "gathered weights" for part in there.plan.memory)


def test_numbers_of_gpus_are_those_of_a_host_and_a_service_counts_from_0():
    second = recipe("ssh:office", gpus=[1])
    with pytest.raises(SetupError, match="2 GPUs"):
        plan_there(second, [offer(1)])
    assert plan_there(second, [offer(2)])[0].plan.fits
    pair = {"strategy": "data_parallel", "gpus": [2, 3]}
    assert recipe_there(recipe("ssh:office", **pair)).devices.gpus == [2, 3]
    for where in ("slurm", "hf", "sky"):
        assert recipe_there(recipe(where, **pair)).devices.gpus == [0, 1]
        assert plan_there(recipe(where, **pair), [offer(2)])[0].used_gpus == 2
    assert recipe_there(recipe("slurm"), 3).devices.strategy == "data_parallel"
    with pytest.raises(UsageError, match="exact"):
        recipe_there(recipe("slurm", adapter=AdapterSection(method="full"), exact=True), 2)


def test_processes_share_a_processor_there_where_no_machine_has_a_gpu():
    cpu = Offer("cpu", service_machine("", 0, ram_gib=64))
    assert plan_there(recipe(), [cpu], gpus=2)[0].plan.shared.gpus == 2
    with pytest.raises(SetupError, match="2 GPUs"):
        plan_there(recipe(), [cpu, offer(1)], gpus=2)
    both = plan_there(recipe(kind="cpu"), [cpu, offer(1)], gpus=2)
    assert [(one.plan.device[:3], one.used_gpus) for one in both] == [("CPU", 0), ("CPU", 0)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("asked", "gpus", "count"), [({}, 0, 1), ({}, 4, 4), ({"gpus": [2, 3]}, 0, 2)])
def test_a_cluster_is_asked_for_the_gpus_that_the_recipe_shares(tmp_path, asked, gpus, count):
    strategy = {"strategy": "data_parallel"} if asked else {}
    devices = DevicesSection(where="slurm", **strategy, **asked)
    bundle = make_bundle(tiny_recipe(tmp_path, rows=8).model_copy(update={"devices": devices}), "run", gpus=gpus)
    script = sbatch_script("x", "/x", "true", bundle, offer(4))
    assert f"--gres=gpu:{count}\n" in script
    assert f"--cpus-per-task={2 * count}\n" in script  # a fourth of the node's 8 for each GPU
    assert "gres" not in sbatch_script("x", "/x", "true", bundle, Offer("cpu", service_machine("", 0)))
    assert parse_recipe(bundle.text("recipe.toml")).devices.gpus == list(range(count))
