"""Questions about machine, model and data, each with its ways to fail, cancel and overtake."""

import threading
from pathlib import Path

import pytest

from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe
from burnish_engine.contract.serve.messages import Canceled, Failure, Progress, Result
from burnish_engine.remote.backends.machines import service_machine

from support.app.serve import Server, wait_for
from support.models.export import make_model
from support.models.tiny import conversations, make_llama, write_jsonl


def changed(recipe, **sections):
    """The recipe with other values, as TOML."""
    parsed = parse_recipe(recipe)
    update = {name: getattr(parsed, name).model_copy(update=values) for name, values in sections.items()}
    return dump_recipe(parsed.model_copy(update=update))


def test_machine_and_doctor(warm_server):
    machine = warm_server.result("machine").machine
    assert machine.cpu_cores > 0
    checkup = warm_server.result("doctor").checkup
    assert checkup.machine.cpu == machine.cpu
    assert any(kernel.passed for kernel in checkup.kernels)


@pytest.mark.full
def test_quick_questions_overtake_slow_ones(server, recipe):
    slow = server.send("doctor")
    inspect = server.send("inspect", recipe=recipe)
    server.result("runs")
    server.result("machine")
    server.result("estimate", recipe=recipe)
    assert not [message for message in server.early(slow) + server.early(inspect) if isinstance(message, Result)]
    assert server.until_end(slow)[-1].checkup
    assert server.until_end(inspect)[-1].dataset


def test_a_model(warm_server, recipe):
    path = parse_recipe(recipe).model.path
    model = warm_server.result("model", path=path).model
    assert (model.family, model.chat, model.path) == ("llama", True, path)
    assert model.parameters > 10_000
    assert model.bytes > model.parameters
    assert model.spec.hidden_size == 64
    missing = warm_server.failure("model", path="/no/such/folder")
    assert "/no/such/folder" in missing.what
    assert missing.exit_code == 2


def test_parameters_are_those_of_torch(recipe):
    from transformers import AutoModelForCausalLM

    from burnish_engine.service.model_facts import count_parameters

    folder = parse_recipe(recipe).model.path
    model = AutoModelForCausalLM.from_pretrained(folder)
    from pathlib import Path

    assert count_parameters(Path(folder)) == model.num_parameters()


def test_inspect_and_preview_see_the_same_rows(warm_server, recipe, tmp_path):
    data = write_jsonl(tmp_path / "train.jsonl", conversations(40))  # which no other test has had read
    recipe = changed(recipe, data={"files": [str(data)]})
    request_id = warm_server.send("inspect", recipe=recipe)
    *before, last = warm_server.until_end(request_id)
    assert before
    assert all(isinstance(message, Progress) for message in before)
    facts = last.dataset
    assert facts.train_rows == 40
    preview = warm_server.result("preview", recipe=recipe).preview
    assert "".join(text for text, _ in preview.pieces) == "".join(text for text, _ in facts.example)
    assert "".join(text for text, learned in preview.pieces if learned) == "".join(
        text for text, learned in facts.example if learned
    )
    assert (preview.file, preview.row, preview.problem) == (str(data), 1, "")
    assert preview.tokens == len(preview.pieces) > preview.supervised_tokens == sum(one for _, one in preview.pieces)
    last_row = warm_server.result("preview", recipe=recipe, file=str(data), index=39).preview
    assert last_row.row == 40
    assert last_row.pieces != preview.pieces
    assert "40 rows" in warm_server.failure("preview", recipe=recipe, index=40).what


def test_one_bad_file_does_not_stop_the_others(warm_server, recipe, tmp_path):
    good = write_jsonl(tmp_path / "good.jsonl", conversations(20))
    begins = write_jsonl(tmp_path / "begins.jsonl", conversations(5))
    begins.write_text(begins.read_text(encoding="utf-8") + '{"messages": \n', encoding="utf-8")
    odd = write_jsonl(tmp_path / "odd.jsonl", [{"alpha": 1, "beta": 2}])
    names = [str(tmp_path / "gone.jsonl"), str(begins), str(good), str(odd)]
    several = changed(recipe, data={"files": names, "validation_files": []})
    dataset = warm_server.result("inspect", recipe=several).dataset
    assert dataset.rows == 20
    files = dataset.report.files
    assert [(Path(file.file).name, file.entry, file.rows) for file in files] == [
        ("gone.jsonl", 0, 0), ("begins.jsonl", 1, 0), ("good.jsonl", 2, 20), ("odd.jsonl", 3, 0),
    ]  # fmt: skip
    assert [bool(file.problem) for file in files] == [True, True, False, True]
    assert "line 6" in files[1].problem
    assert "broken_rows" in files[1].remedy
    only_bad = changed(recipe, data={"files": [names[0], names[3]], "validation_files": []})
    assert "gone.jsonl" in warm_server.failure("inspect", recipe=only_bad).what


def test_rows_are_read_a_stretch_at_a_time_and_one_by_one(warm_server, recipe, tmp_path):
    data = write_jsonl(tmp_path / "many.jsonl", [{"text": f"Row {n}.", "n": n} for n in range(3000)])
    data.write_text(data.read_text(encoding="utf-8").replace('"n": 2}', '"n": }'), encoding="utf-8")
    many = changed(recipe, data={"files": [str(data)], "validation_files": []})
    page = warm_server.result("rows", recipe=many, start=2990, count=20).rows
    assert [line.index for line in page.rows] == list(range(2990, 3000))
    assert page.rows[-1].cells == {"text": "Row 2999.", "n": "2999"}
    assert (page.total, page.exact) == (3000, True)
    first = warm_server.result("rows", recipe=many, file=str(data), count=3).rows.rows
    assert [(line.row, bool(line.problem), bool(line.cells)) for line in first] == [
        (1, False, True), (2, False, True), (3, True, False),
    ]  # fmt: skip
    places = [{"file": str(data), "row": row} for row in (7, 2001, 9999)]
    found = warm_server.result("rows", recipe=many, places=places).rows
    assert [(line.row, line.index) for line in found.rows] == [(7, 6), (2001, 2000)]
    elsewhere = warm_server.failure("rows", recipe=many, file=str(tmp_path / "other.jsonl"))
    assert "not among" in elsewhere.what


def test_a_row_that_is_not_learned_says_why(warm_server, recipe, tmp_path):
    rows = [*conversations(3), {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}]}]
    data = write_jsonl(tmp_path / "empty.jsonl", rows)
    mine = changed(recipe, data={"files": [str(data)], "validation_files": []})
    preview = warm_server.result("preview", recipe=mine, index=3).preview
    assert "empty" in preview.problem
    assert preview.pieces == []


@pytest.mark.full
def test_columns_that_can_be_read_in_two_ways_are_asked_about(warm_server, recipe, tmp_path):
    rows = [{"question": f"What is {n}?", "prompt": f"Say {n}.", "answer": f"It is {n} — é."} for n in range(30)]
    data = write_jsonl(tmp_path / "two ways.jsonl", rows)
    only = {"files": [str(data)], "validation_files": []}
    two_ways = changed(recipe, data=only)
    assert "2 ways" in warm_server.failure("inspect", recipe=two_ways).what
    found = warm_server.result("columns", recipe=two_ways).columns
    assert "2 ways" in found.question
    assert found.columns == {"question": "What is 0?", "prompt": "Say 0.", "answer": "It is 0 — é."}
    assert {reading.columns["prompt"] for reading in found.readings} == {"question", "prompt"}
    chosen = {setting.key.removeprefix("data."): setting.value for setting in found.readings[0].settings}
    told = changed(recipe, data={**only, **chosen})
    dataset = warm_server.result("inspect", recipe=told).dataset
    assert (dataset.rows, dataset.report.readings[0].columns) == (30, found.readings[0].columns)
    model = parse_recipe(recipe).model.path
    suggestion = warm_server.result("suggest", model=model, data=[str(data)], recipe=told).suggestion
    assert parse_recipe(suggestion.recipe).data.files == [str(data)]
    told = changed(told, data={**only, **chosen, "validation_share": 0.4})
    reasons = {
        choice.key: choice.reason
        for choice in warm_server.result("suggest", model=model, data=[str(data)], recipe=told).suggestion.choices
    }
    assert "18 rows" in reasons["train.epochs"]


def test_columns_of_data_that_cannot_be_read(warm_server, recipe, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{\n" * 5, encoding="utf-8")
    assert "can be read" in warm_server.failure("columns", recipe=changed(recipe, data={"files": [str(broken)]})).what
    assert "names no training files" in warm_server.failure("columns", recipe=changed(recipe, data={"files": []})).what


def test_a_changed_file_is_read_again(warm_server, recipe, tmp_path):
    data = write_jsonl(tmp_path / "mine.jsonl", conversations(12))
    mine = changed(recipe, data={"files": [str(data)]})
    assert warm_server.result("inspect", recipe=mine).dataset.train_rows == 12
    write_jsonl(data, conversations(15))
    assert warm_server.result("inspect", recipe=mine).dataset.train_rows == 15


def test_data_that_cannot_be_used_is_told(warm_server, recipe, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{not json\n", encoding="utf-8")
    failure = warm_server.failure("inspect", recipe=changed(recipe, data={"files": [str(bad)]}))
    assert failure.exit_code == 11
    assert "bad.jsonl" in failure.what
    assert failure.remedy or failure.what
    not_toml = warm_server.failure("inspect", recipe="= nothing")
    assert not_toml.exit_code == 2


@pytest.mark.full
def test_inspecting_can_be_canceled(warm_server, recipe, tmp_path):
    data = write_jsonl(tmp_path / "long.jsonl", conversations(100) * 600)
    request_id = warm_server.send("inspect", recipe=changed(recipe, data={"files": [str(data)]}))
    while not (isinstance(message := warm_server.next(), Progress) and message.total):
        pass
    warm_server.send("cancel", request=request_id)
    assert isinstance(warm_server.until_end(request_id)[-1], Canceled)
    assert warm_server.result("inspect", recipe=recipe).dataset.train_rows == 40  # and the worker continues


@pytest.mark.full
def test_the_doctor_can_be_canceled(server):
    import psutil

    request_id = server.send("doctor")
    wait_for(lambda: psutil.Process(server.hello.pid).children())
    server.send("cancel", request=request_id)
    assert isinstance(server.until_end(request_id)[-1], Canceled)
    assert wait_for(lambda: not psutil.Process(server.hello.pid).children())


def test_a_plan_knows_the_dataset_once_it_was_inspected(warm_server, recipe, tmp_path):
    data = write_jsonl(tmp_path / "mine.jsonl", conversations(40))
    longer = changed(recipe, data={"files": [str(data)]}, train={"max_steps": 0, "epochs": 2.0})
    before = warm_server.result("estimate", recipe=longer).plan
    assert before.steps is None
    facts = warm_server.result("inspect", recipe=longer).dataset
    after = warm_server.result("estimate", recipe=longer).plan
    assert abs(after.steps - 2 * facts.micro_batches) <= 1
    # A slider of the training section does not ask for the data to be read again.
    other = warm_server.result("estimate", recipe=changed(longer, train={"micro_batch_tokens": 512})).plan
    assert abs(other.steps - after.steps / 2) <= 1


def test_only_the_newest_estimate_is_worth_making(warm_server, recipe):
    ids = [warm_server.send("estimate", recipe=recipe) for _ in range(30)]
    ends = [warm_server.until_end(request_id)[-1] for request_id in ids]
    assert isinstance(ends[-1], Result)
    assert all(isinstance(end, Result | Canceled) for end in ends)


def test_an_estimate_says_what_is_wrong(warm_server, recipe):
    assert warm_server.failure("estimate", recipe="[train]\nepochz = 1").exit_code == 2
    gone = warm_server.failure("estimate", recipe=changed(recipe, model={"path": "/no/such/model"}))
    assert "/no/such/model" in gone.what


@pytest.mark.full
def test_an_unknown_family_is_planned_by_the_worker(warm_server, recipe, tmp_path):
    """transformers knows it and our specification does not: judging it takes torch, which stays out of the server."""
    import shutil
    from pathlib import Path

    import psutil

    folder = make_model(tmp_path / "olmo", "olmo").folder
    plan = warm_server.result("estimate", recipe=changed(recipe, model={"path": str(folder)})).plan
    assert plan.memory_bytes > 0
    there = service_machine("H100", 1, memory_gib=80.0).model_dump(mode="json")
    on_gpu = changed(recipe, model={"path": str(folder)}, devices={"kind": "auto"})
    assert "H100" in warm_server.result("estimate", recipe=on_gpu, machine=there).plan.device
    shutil.copytree(folder, fetched_model_dir("someone/olmo"))
    suggestion = warm_server.result("suggest", model="someone/olmo").suggestion
    assert suggestion.model == "someone/olmo"
    assert suggestion.plan.coverage.share_text == "100 %"
    if Path("/proc/self/maps").exists():
        assert "libtorch" not in Path(f"/proc/{warm_server.hello.pid}/maps").read_text(encoding="utf-8")
    assert psutil.Process(warm_server.hello.pid).children()


@pytest.mark.full
def test_a_data_process_that_is_killed_is_told_and_comes_back(warm_server, recipe, tmp_path):
    import psutil

    warm_server.result("inspect", recipe=recipe)
    (worker,) = psutil.Process(warm_server.hello.pid).children()
    data = write_jsonl(tmp_path / "long.jsonl", conversations(100) * 600)
    request_id = warm_server.send("inspect", recipe=changed(recipe, data={"files": [str(data)]}))
    threading.Timer(0.5, worker.kill).start()
    end = warm_server.until_end(request_id)[-1]
    assert isinstance(end, Failure)
    assert end.exit_code == 12
    assert "long.jsonl" in end.what
    assert warm_server.result("inspect", recipe=recipe).dataset.train_rows == 40


@pytest.mark.parametrize("method", ["resume", "delete", "cancel_export"])
def test_a_run_that_does_not_exist(warm_server, method):
    failure = warm_server.failure(method, run="no-such-run")
    assert failure.exit_code == 2
    assert "no-such-run" in failure.what


def test_what_fits_here_is_answered_with_progress(warm_server):
    request_id = warm_server.send("what_fits")
    *before, last = warm_server.until_end(request_id)
    assert before
    assert all(isinstance(message, Progress) and message.what for message in before)
    assert len(last.what_fits.models) >= 6
    small = warm_server.result("what_fits", model="Qwen/Qwen3-0.6B", gpu_gib=6.0).what_fits
    assert {one.name for one in small.models} == {"Qwen/Qwen3-0.6B"}
    assert small.memory_total_bytes == 6 * 2**30
    assert warm_server.failure("what_fits", gpu_gib=0.01).exit_code == 2
    assert "/no/such/model" in warm_server.failure("what_fits", model="/no/such/model").what


def test_models_are_ranked_for_this_machine(warm_server):
    models = warm_server.result("models").models
    assert len(models) > 10
    names = [ranked.model.name for ranked in models]
    (few,) = {ranked.model.family for ranked in warm_server.result("models", query="smollm2 135m").models}
    assert "SmolLM2" in few
    assert len(set(names)) == len(names)
    assert warm_server.result("models", query="no such model at all").models == []
    phone = warm_server.result("models", target={"kind": "phone", "ram_gib": 4.0}).models
    assert [ranked.verdict for ranked in phone] != [ranked.verdict for ranked in models]


@pytest.mark.full
def test_models_of_other_programs_are_answered_with_a_reason_each(tmp_path, burnish_home):
    folder = tmp_path / "models--Acme--Tiny" / "snapshots" / "a1"
    folder.mkdir(parents=True)
    make_llama(folder)
    with Server(HF_HUB_CACHE=str(tmp_path), OLLAMA_MODELS=str(tmp_path)) as server:
        found = server.result("local_models").local_models
    (tiny,) = (one for one in found if one.name == "Acme/Tiny")
    assert tiny.verdict in ("good", "tight")
    assert tiny.folder == str(folder)
    assert all(one.reason for one in found)


def test_models_are_ranked_for_the_rows_that_were_inspected(warm_server, recipe):
    facts = warm_server.result("inspect", recipe=recipe).dataset
    many = facts.model_copy(update={"train_rows": 10**8, "tokens": 10**11}).model_dump(mode="json")
    unknown, mine = (
        {one.model.name: one.reason for one in warm_server.result("models", recipe=recipe, **fields).models}
        for fields in ({}, {"dataset": many})
    )
    assert unknown != mine
    assert warm_server.result("inspect", recipe=recipe).dataset == facts  # what the next tests plan with


def test_a_recipe_is_suggested_that_can_be_started(warm_server, recipe):
    parsed = parse_recipe(recipe)
    found = warm_server.result("suggest", model=parsed.model.path, data=parsed.data.files).suggestion
    suggested = parse_recipe(found.recipe)
    assert suggested.model.path == parsed.model.path
    assert suggested.data.files == parsed.data.files
    assert found.choices
    assert all(choice.reason for choice in found.choices)
    plan = warm_server.result("estimate", recipe=found.recipe).plan
    assert plan.fits
    assert plan.memory_bytes == found.plan.memory_bytes


def test_rows_of_labels_are_suggested_to_be_scored_as_choices(warm_server, recipe, tmp_path):
    kinds = ("question", "complaint", "praise")
    rows = [{"prompt": f"Letter {n}", "completion": kinds[n % 3]} for n in range(300)]
    parsed, data = parse_recipe(recipe), write_jsonl(tmp_path / "labels.jsonl", rows)
    asked = dump_recipe(parsed.model_copy(update={"data": parsed.data.model_copy(update={"validation_files": []})}))
    found = warm_server.result("suggest", model=parsed.model.path, data=[str(data)], recipe=asked).suggestion
    assert parse_recipe(found.recipe).task.metric == "choice"
    (reason,) = (choice.reason for choice in found.choices if choice.key == "task.metric")
    assert all(kind in reason for kind in kinds)
    plain = warm_server.result("suggest", model=parsed.model.path, data=parsed.data.files).suggestion
    assert parse_recipe(plain.recipe).task.metric == "none"


def test_suggesting_does_not_read_again_what_was_inspected(warm_server, recipe):
    parsed = parse_recipe(recipe)
    warm_server.result("inspect", recipe=changed(recipe, data={"validation_files": []}))
    request_id = warm_server.send("suggest", model=parsed.model.path, data=parsed.data.files)
    messages = warm_server.until_end(request_id)
    assert isinstance(messages[-1], Result)
    assert len(messages) == 1  # no progress: nothing was read


def test_a_phone_gets_a_smaller_file_than_a_laptop(warm_server):
    """Though the target comes with every field filled in, its default file type is no choice."""
    target = {"kind": "phone", "ram_gib": 4.0, "context": 2048, "quant": "auto"}
    found = warm_server.result("suggest", model="Qwen/Qwen3-4B", target=target).suggestion
    assert parse_recipe(found.recipe).export.quants[0].startswith("Q4")
    target["quant"] = "Q6_K"
    found = warm_server.result("suggest", model="Qwen/Qwen3-4B", target=target).suggestion
    assert parse_recipe(found.recipe).export.quants == ["Q6_K"]


def test_a_suggestion_for_what_is_not_there(warm_server, recipe, tmp_path):
    assert "/no/such/model" in warm_server.failure("suggest", model="/no/such/model").what
    there, gone = parse_recipe(recipe).model.path, str(tmp_path / "gone.jsonl")
    assert "gone.jsonl" in warm_server.failure("suggest", model=there, data=[gone]).what


@pytest.mark.full
def test_a_recipe_is_planned_and_suggested_for_another_machine(warm_server, recipe):
    """Model and data are here, cards and memory are those of the facts that came along."""
    there = service_machine("H100", 1, memory_gib=80.0)
    on_gpu = changed(recipe, devices={"kind": "auto"})
    plan = warm_server.result("estimate", recipe=on_gpu, machine=there.model_dump(mode="json")).plan
    assert "H100" in plan.device
    assert plan.memory_free_bytes > 70 * 2**30
    here = warm_server.result("estimate", recipe=recipe).plan
    assert "H100" not in here.device
    asked = {"model": parse_recipe(recipe).model.path, "data": parse_recipe(recipe).data.files}
    suggestion = warm_server.result("suggest", **asked, machine=there.model_dump(mode="json")).suggestion
    assert "H100" in suggestion.plan.device
