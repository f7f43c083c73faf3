"""The workbench: one truth, what a change makes stale, and that nothing is lost by closing."""

import os

import pytest
from app.facts.page_facts import suggestion

from burnish_app.state.workbench import Workbench
from burnish_engine.contract.facts.advice import ModelFacts, RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection

MODEL = ModelFacts(path="/m", name="m", folder="/m", family="llama")
DATA = DatasetFacts(
    files=["/d.jsonl"], format="jsonl", shape="messages", columns=[], rows=3, train_rows=3, validation_rows=0
)
PLAN = RunPlan(
    device="CPU", memory=[], memory_bytes=1, memory_free_bytes=2, memory_total_bytes=3, disk_bytes=1, disk_free_bytes=2,
    fits=True, trainable_parameters=1, tokens_per_s=1.0,
)  # fmt: skip


@pytest.fixture
def full(bench):
    bench.set_model_path("/m")
    bench.set_data_files(["/d.jsonl"])
    bench.set_model(MODEL)
    bench.set_dataset(DATA)
    bench.set_plan(PLAN)
    return bench


def heard(bench):
    names = []
    bench.changed.connect(names.append)
    return names


def test_choices_are_views_into_the_recipe(bench):
    bench.set_data_files(["/a.csv"])
    bench.set_validation_files(["/b.csv"])
    bench.set_target(TargetSection(kind="phone", ram_gib=6.0))
    bench.set_model_path("/models/x")
    assert bench.recipe.data.files == ["/a.csv"]
    assert bench.recipe.data.validation_files == ["/b.csv"]
    assert bench.recipe.target.kind == "phone"
    assert (bench.recipe.model.path, bench.model_path) == ("/models/x", "/models/x")


def test_another_model_makes_all_facts_stale(full):
    names = heard(full)
    full.set_model_path("embedded")
    assert (full.model, full.dataset, full.plan) == (None, None, None)
    assert {"model_path", "model", "dataset", "plan", "recipe"} <= set(names)
    assert "data_files" not in names


def test_other_data_keeps_the_model(full):
    full.set_data_files(["/other.jsonl"])
    assert full.model == MODEL
    assert full.dataset is None


def test_the_last_facts_of_the_same_files_are_known_while_they_are_inspected_again(full):
    full.set_model_path("embedded")
    assert (full.dataset, full.last_dataset) == (None, DATA)
    files = full.data_files
    full.set_data_files(["/other.jsonl"])
    assert full.last_dataset is None
    full.set_data_files(files)
    assert full.last_dataset == DATA


def test_another_setting_makes_only_the_plan_stale(full):
    names = heard(full)
    train = full.recipe.train.model_copy(update={"epochs": 5.0})
    full.set_recipe(full.recipe.model_copy(update={"train": train}))
    assert (full.model, full.dataset, full.plan) == (MODEL, DATA, None)
    assert set(names) == {"plan", "recipe"}


def test_the_same_choice_again_changes_nothing(full):
    names = heard(full)
    full.set_model_path("/m")
    full.set_recipe(full.recipe)
    assert not names
    assert full.plan == PLAN


def test_everything_but_the_plan_survives_a_restart(full, tmp_path):
    full.set_run(str(tmp_path))
    full.save()
    again = Workbench()
    assert again.recipe == full.recipe
    assert (again.model, again.dataset, again.run) == (MODEL, DATA, str(tmp_path))
    assert again.plan is None


def test_a_change_is_saved_without_asking(qtbot, bench):
    bench.set_model_path("/somewhere")
    qtbot.waitUntil(lambda: Workbench().model_path == "/somewhere")


@pytest.mark.parametrize("field", ["files", "validation_files", "template"])
def test_a_file_that_changes_on_disk_is_noticed(bench, tmp_path, field):
    file = tmp_path / "file"
    file.write_text("{}")
    bench.change_data(**{field: str(file) if field == "template" else [str(file)]})
    bench.set_dataset(DATA, bench.dataset_inputs())
    bench.save()
    again = Workbench()
    assert not bench.data_was_replaced
    assert not again.data_was_replaced
    os.utime(file, ns=(1, 1))
    assert bench.data_was_replaced
    assert again.data_was_replaced, "also by a window that was opened meanwhile"


def test_another_target_makes_the_suggestion_stale(full):
    full.set_suggestion(suggestion())
    full.set_target(TargetSection(kind="phone"))
    assert full.suggestion is None


def test_the_draft_that_a_copy_replaced_comes_back(full):
    before = full.recipe
    full.draft_copy(Recipe(), "a run")
    assert full.recipe == Recipe()
    full.take_back_draft()
    assert full.recipe == before
    assert full.replaced is None


def test_files_keep_their_weights_when_others_come_and_go(bench):
    bench.set_data_files(["/a.jsonl", "/b.jsonl"])
    bench.change_data(weights=[0.5, 2.0])
    bench.set_data_files(["/b.jsonl", "/c.jsonl", "/a.jsonl"])
    assert bench.recipe.data.weights == [2.0, 1.0, 0.5]
    bench.set_data_files(["/c.jsonl"])
    assert bench.recipe.data.weights == []


def test_an_adapter_to_go_on_from_belongs_to_its_model(tmp_path, qapp):
    bench = Workbench(tmp_path / "bench.json")
    bench.set_model_path("/m")
    bench.set_recipe(bench.recipe.model_copy(update={"adapter": AdapterSection(method="full")}))
    bench.set_start("/runs/first")
    assert (bench.recipe.adapter.start, bench.recipe.adapter.method) == ("/runs/first", "lora")
    bench.set_model_path("/m")
    assert bench.recipe.adapter.start
    bench.set_model_path("/other")
    assert bench.recipe.adapter.start == ""
