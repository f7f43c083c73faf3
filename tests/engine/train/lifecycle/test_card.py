"""The card that a run keeps: real tiny runs, whose hashes are computed again here."""

import hashlib
import json
import shutil
import threading
from types import SimpleNamespace

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode, NoSpaceError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import FactChange, HashedFile
from burnish_engine.contract.run.events import PhaseChanged, StepDone, Warned
from burnish_engine.runs.card import read_card, write_card
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.file_hashes import CanceledError
from burnish_engine.runs.store import create_run
from burnish_engine.train.lifecycle import card as card_module
from burnish_engine.train.lifecycle.card import CardKeeper
from burnish_engine.train.run import run_training

from support.models.tiny import conversations, write_jsonl
from support.runs.cards import digest, files, make_card, row_files
from support.runs.tiny_runs import tiny_recipe


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def warnings(paths):
    return [event.message for event in read_events(paths.events) if isinstance(event, Warned) and event.code == "card"]


def stop_after(paths, step, name="stop"):
    """A listener that ends the run after a step."""

    def listen(event):
        if isinstance(event, StepDone) and event.step == step:
            send(paths, name)

    return listen


@pytest.mark.full
def test_a_run_keeps_the_hashes_of_everything_it_was_made_of(tmp_path):
    paths = create_run(tiny_recipe(tmp_path, max_steps=4, seed=7), tmp_path / "run")
    during = []

    def listen(event):
        if isinstance(event, PhaseChanged) and event.phase == "training":
            during.append(read_card(paths))

    assert run_training(paths, listener=listen).exit_code == ExitCode.DONE
    assert during[0].result is None
    assert during[0].circumstances.engine == "fast"

    card = read_card(paths)
    base = {file.name: file for file in card.base.files}
    assert {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"} <= base.keys()
    assert {name: (file.bytes, file.sha256) for name, file in base.items()} == {
        name: ((tmp_path / "base" / name).stat().st_size, sha256(tmp_path / "base" / name)) for name in base
    }
    assert [(file.name, file.role, file.sha256) for file in card.data.files] == [
        ("train.jsonl", "train", sha256(tmp_path / "train.jsonl")),
        ("held.jsonl", "held out", sha256(tmp_path / "held.jsonl")),
    ]
    assert card.recipe_sha256 == sha256(paths.recipe)
    assert (card.seed, card.steps, card.begun_step, card.resumes) == (7, 4, 0, [])
    assert (card.data.train_rows, card.data.held_out_rows) == (40, 8)

    result = card.result
    assert (result.ended, result.step, result.trained) == ("finished", 4, "adapter")
    assert result.tokens == sum(event.tokens for event in read_events(paths.events) if isinstance(event, StepDone))
    assert {file.name: file.sha256 for file in result.files} == {
        path.name: sha256(path) for path in paths.adapter.iterdir()
    }
    assert any(file.name == "adapter_model.safetensors" for file in result.files)
    facts = card.circumstances
    assert (facts.precision, facts.weights, facts.threads, facts.layout) == ("fp32", "fp32", 1, "packed")
    assert facts.memory_plan.startswith("layers = ")
    assert {"burnish", "python", "torch", "transformers", "peft"} <= facts.versions.keys()
    assert "driver" not in facts.versions  # it computed nothing
    text = paths.card.read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert json.dumps(str(tmp_path))[1:-1] not in text


def test_a_whole_model_is_hashed_too(tmp_path):
    recipe = tiny_recipe(tmp_path, max_steps=1, optimizer='"adamw"')
    recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"method": "full"})})
    paths = create_run(recipe, tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    result = read_card(paths).result
    assert result.trained == "model"
    hashes = {file.name: file.sha256 for file in result.files}
    assert hashes["model.safetensors"] == sha256(paths.model / "model.safetensors")


@pytest.mark.full
def test_a_resumed_run_keeps_its_first_card_and_adds_what_changed(tmp_path, monkeypatch):
    paths = create_run(tiny_recipe(tmp_path, max_steps=6), tmp_path / "run")
    run_training(paths, listener=stop_after(paths, 3))
    first = read_card(paths)
    stopped_at = first.result.step
    assert first.result.ended == "stopped"

    config = tmp_path / "base" / "generation_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text(encoding="utf-8")), "top_k": 7}), encoding="utf-8")
    now = {**first.circumstances.versions, "torch": "9.9.9"}
    monkeypatch.setattr("burnish_engine.train.lifecycle.card_facts.versions", lambda: dict(now))
    assert run_training(paths).exit_code == ExitCode.DONE
    second = read_card(paths)
    assert second.model_copy(update={"resumes": [], "result": first.result}) == first
    (resume,) = second.resumes
    assert resume.step == stopped_at
    before = {file.name: file.sha256 for file in first.base.files}["generation_config.json"]
    assert resume.changed == [
        FactChange(what="torch", before=first.circumstances.versions["torch"], after="9.9.9"),
        FactChange(what="base: generation_config.json", before=before, after=sha256(config)),
    ]
    assert (second.result.ended, second.result.step) == ("finished", 6)


@pytest.mark.full
def test_a_run_that_is_older_than_its_card_says_so(tmp_path):
    paths = create_run(tiny_recipe(tmp_path, max_steps=4), tmp_path / "run")
    run_training(paths, listener=stop_after(paths, 2))
    step = read_card(paths).result.step
    paths.card.unlink()
    run_training(paths)
    card = read_card(paths)
    assert (card.begun_step, card.resumes, card.result.step) == (step, [], 4)


@pytest.mark.full
def test_runs_compare_shows_a_changed_data_file(tmp_path, capsys):
    recipe = tiny_recipe(tmp_path, max_steps=2)
    runs = [create_run(recipe, tmp_path / name) for name in ("one", "two", "three")]
    for paths in runs[:2]:
        run_training(paths)
    write_jsonl(tmp_path / "train.jsonl", conversations(39))
    run_training(runs[2])

    def compared(second):
        assert main(["runs", "compare", str(runs[0].root), str(second.root)]) == 0
        return capsys.readouterr().out.splitlines()

    same, changed = compared(runs[1]), compared(runs[2])
    assert {"base model: the same weights", "data: the same files"} <= set(same)
    assert "trained weights: the same, bit for bit" in same
    assert {"base model: the same weights", "data: train.jsonl differs", "training rows 40 / 39"} <= set(changed)
    assert "trained weights: differ" in changed


@pytest.mark.full
def test_a_damaged_card_is_begun_anew_and_said(tmp_path):
    paths = create_run(tiny_recipe(tmp_path, max_steps=4), tmp_path / "run")
    run_training(paths, listener=stop_after(paths, 2))
    step = read_card(paths).result.step
    paths.card.write_text("{", encoding="utf-8")
    assert run_training(paths).exit_code == ExitCode.DONE
    assert read_card(paths).begun_step == step > 0
    assert "A new card is begun." in warnings(paths)[0]


def test_a_card_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch):
    def full(*_):
        raise NoSpaceError("The disk is full.", "Free some space.")

    monkeypatch.setattr(card_module, "write_card", full)
    paths = create_run(tiny_recipe(tmp_path, max_steps=2), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    assert not paths.card.exists()
    assert "continues without its card" in warnings(paths)[0]


class SavedEngine:
    """What a keeper asks of an engine."""

    facts = SimpleNamespace(trains="adapter", memory_plan="")


@pytest.fixture
def keeper(tmp_path):
    """Make a keeper over two real files: (card already there, step) -> it, and what it warned of."""
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"trained")
    paths = RunPaths(tmp_path)
    for name in ("train.jsonl", "model.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    made = []

    def make(card=None, step=0):
        if card:
            write_card(paths, card)
        fresh = make_card(
            base=files(model_safetensors=None), data=row_files(("train.jsonl", None)), result=False
        )  # fmt: skip
        warned = []
        made.append(
            CardKeeper(
                paths, fresh, data=[tmp_path / "train.jsonl"], base=[tmp_path / "model.safetensors"], step=step,
                warn=lambda _code, words: warned.append(words),
            )
        )  # fmt: skip
        return made[-1], warned

    yield make
    for each in made:
        each.close()


@pytest.fixture
def slow(monkeypatch):
    """Reading the base model takes until it is set, or until it is canceled."""
    ready = threading.Event()

    def wait(path, canceled):
        while not ready.wait(0.01):
            if canceled():
                raise CanceledError
        return sha256(path)

    monkeypatch.setattr(card_module, "known_sha256", wait)
    return ready


def test_the_card_is_there_before_the_base_is_read(keeper, slow, tmp_path):
    kept, _ = keeper()
    assert read_card(RunPaths(tmp_path)).base.files[0].sha256 is None
    threading.Timer(0.1, slow.set).start()
    kept.complete(SavedEngine(), None, 10, 100)
    card = read_card(RunPaths(tmp_path))
    assert card.base.files[0].sha256 == sha256(tmp_path / "model.safetensors")
    assert card.result.files[0].sha256 == hashlib.sha256(b"trained").hexdigest()


def test_who_stops_a_run_does_not_wait_long_for_hashes_and_a_resume_fills_them_in(keeper, slow, monkeypatch, tmp_path):
    monkeypatch.setattr(card_module, "_PATIENCE_S", 0.05)
    kept, _ = keeper()
    kept.complete(SavedEngine(), "suspend", 5, 50)
    kept.close()
    half = read_card(RunPaths(tmp_path))
    assert (half.result.ended, half.base.files[0].sha256) == ("suspended", None)
    assert half.data.files[0].sha256 == sha256(tmp_path / "train.jsonl")
    slow.set()
    again, _ = keeper(step=5)
    again.complete(SavedEngine(), None, 10, 100)
    card = read_card(RunPaths(tmp_path))
    assert card.base.files[0].sha256 == sha256(tmp_path / "model.safetensors")
    assert [(resume.step, resume.changed) for resume in card.resumes] == [(5, [])]


def test_a_file_that_cannot_be_read_is_said_and_left_open(keeper, monkeypatch, tmp_path):
    def refused(path, _canceled):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(card_module, "known_sha256", refused)
    kept, warned = keeper()
    kept.complete(SavedEngine(), None, 10, 100)
    assert read_card(RunPaths(tmp_path)).base.files[0].sha256 is None
    assert "model.safetensors: Permission denied" in warned[0]
    assert str(tmp_path) not in warned[0]


def test_hashes_are_written_when_they_are_ready_not_only_at_the_end(keeper, tmp_path):
    kept, _ = keeper()
    kept._thread.join(30)
    kept.close()
    card = read_card(RunPaths(tmp_path))
    assert card.result is None
    assert card.base.files[0].sha256 == sha256(tmp_path / "model.safetensors")
    assert card.data.files[0].sha256 == sha256(tmp_path / "train.jsonl")


def test_a_run_that_begins_again_before_its_first_step_gets_a_new_card(keeper, tmp_path):
    old = make_card(versions={"torch": "1.0"}, result=False)
    kept, _ = keeper(old, step=0)
    kept.complete(SavedEngine(), None, 10, 100)
    card = read_card(RunPaths(tmp_path))
    assert card.resumes == []
    assert card.circumstances.versions["torch"] == "2.13.0"


def test_each_resume_tells_only_what_changed_since_the_one_before(keeper, tmp_path):
    weights, rows = sha256(tmp_path / "model.safetensors"), sha256(tmp_path / "train.jsonl")
    first = make_card(base=files(model_safetensors="b"), data=row_files(("train.jsonl", "d")), threads=2)
    for step in (3, 6):
        kept, _ = keeper(first if step == 3 else None, step=step)
        kept.complete(SavedEngine(), None, 10, 100)
        kept.close()
    once, twice = read_card(RunPaths(tmp_path)).resumes
    assert once.changed == [
        FactChange(what="threads", before="2", after="4"),
        FactChange(what="data: train.jsonl", before=digest("d"), after=rows),
        FactChange(what="base: model.safetensors", before=digest("b"), after=weights),
    ]
    assert twice.changed == []


def test_a_file_that_a_resumed_run_cannot_read_is_no_change(keeper, monkeypatch, tmp_path):
    """Nor is one that could not be read before; one that has gone is, and so is its return."""
    weights, rows = sha256(tmp_path / "model.safetensors"), sha256(tmp_path / "train.jsonl")
    base = [HashedFile(name="model.safetensors", bytes=7, sha256=weights), *files(config_json="c")]
    first = make_card(base=base, data=row_files(("train.jsonl", None)))

    def refused(path, _canceled):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(card_module, "known_sha256", refused)
        kept, warned = keeper(first, step=3)
        kept.complete(SavedEngine(), None, 10, 100)
        kept.close()
    assert "model.safetensors: Permission denied" in warned[0]
    kept, _ = keeper(step=6)
    kept.complete(SavedEngine(), None, 10, 100)
    card = read_card(RunPaths(tmp_path))
    gone = FactChange(what="base: config.json", before=digest("c"), after=None)
    assert [resume.changed for resume in card.resumes] == [[gone], []]
    assert card.data.files[0].sha256 == rows


def test_files_of_the_same_name_are_kept_apart():
    found = card_module._by_name("data", row_files(("rows.jsonl", "1"), ("rows.jsonl", "2")))
    assert found == {"data: rows.jsonl": digest("1"), "data: rows.jsonl (2)": digest("2")}


def test_the_adapter_being_gone_is_said(keeper, tmp_path):
    kept, warned = keeper()
    shutil.rmtree(tmp_path / "adapter")
    kept.complete(SavedEngine(), None, 10, 100)
    assert read_card(RunPaths(tmp_path)).result.files == []
    assert "adapter" in warned[0]
