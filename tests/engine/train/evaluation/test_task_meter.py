"""The score of the task in whole runs: when it is measured, on which rows, and where it is kept and compared."""

import json
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file

from burnish_engine.cli.main import main
from burnish_engine.cli.results import evaluate
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.run.events import EvaluationDone, PhaseChanged, StepDone, TaskScored, Warned
from burnish_engine.duel.measures.outcome import outcome_of
from burnish_engine.duel.sides.spec import RunSpec, run_recipe
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.runs.card import read_card
from burnish_engine.runs.compare.compare import compared_run
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.scoring.rows_file import load_task_rows
from burnish_engine.scoring.score import TaskRow, TaskRows
from burnish_engine.train.evaluation.task_meter import TaskMeter
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.run import run_training

from support.models.tiny import write_jsonl
from support.runs.tiny_runs import of_kind, tiny_recipe

IN_GROUPS = '[task]\nmetric = "json"\nmax_rows = 3\nmax_tokens = 40\n'
TASK = '[task]\nmetric = "json"\nmax_rows = 6\nmax_tokens = 6\n'


def let_replies_end(weights):
    """Give the token that ends a reply a logit: its row is zero, since it is the padding token too."""
    tensors = load_file(weights)
    table_VE = tensors["model.embed_tokens.weight"]
    (zero,) = (table_VE.abs().sum(1) == 0).nonzero().flatten().tolist()
    table_VE[zero] = table_VE[zero + 5].flip(0)
    save_file(tensors, weights, metadata={"format": "pt"})


def json_recipe(folder, *, extra=TASK, reply="7", **train):
    """A recipe that teaches one reply to every question, which is JSON."""
    recipe = tiny_recipe(folder, extra=extra, **train)
    let_replies_end(folder / "base" / "model.safetensors")
    files = [
        str(write_jsonl(folder / f"{name}.jsonl", [{"prompt": f"Part {first + n}?", "completion": reply}
                                                   for n in range(rows)]))
        for name, rows, first in (("json", 32, 0), ("json-held", 8, 500))
    ]  # fmt: skip
    data = recipe.data.model_copy(update={"files": files[:1], "validation_files": files[1:]})
    return recipe.model_copy(update={"data": data})


@pytest.fixture(scope="module")
def scored_run(tmp_path_factory):
    """A finished run of the fast engine whose task is scored."""
    folder = tmp_path_factory.mktemp("scored")
    recipe = json_recipe(folder, max_steps=20, epochs=40.0, learning_rate=2e-2, engine='"fast"')
    paths = create_run(recipe, folder / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    return paths


@pytest.mark.full
def test_a_task_that_is_learned_scores_better_after_than_before(scored_run):
    events = of_kind(scored_run, TaskScored)
    assert [event.step for event in events] == [0, 20]
    found = read_run(scored_run.events).task
    assert (found.before.rows, found.before.right) == (6, 0)
    assert found.after.right == 6
    assert found.verdict == "better"
    assert events[0].score.failures[0].wanted == "7"
    assert "scoring" in {event.phase for event in of_kind(scored_run, PhaseChanged)}
    assert len(load_task_rows(scored_run).rows) == 6


def test_card_comparison_and_duel_have_the_score(scored_run, capsys):
    found = read_run(scored_run.events).task
    assert read_card(scored_run).result.task == found
    assert compared_run(scored_run).task == found
    spec = RunSpec(side=0, phase="seeds", seed=1, rate=0.02)
    outcome = outcome_of(spec, scored_run, scored_run.root / "no-energy")
    assert (outcome.task_share, outcome.task_rows) == (1.0, 6)
    assert main(["runs", "show", str(scored_run.root)]) == 0
    assert found.after.figures in " ".join(capsys.readouterr().out.split())


def test_evaluating_afterwards_finds_the_same_scores(scored_run, capsys):
    assert main(["evaluate", str(scored_run.root), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = read_run(scored_run.events).task
    assert document["models"]["base"]["right"] == found.before.right
    assert document["models"]["tuned"]["right"] == found.after.right
    assert [row["replies"]["tuned"]["right"] for row in document["rows"]] == found.after.passed
    assert main(["evaluate", str(scored_run.root)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert found.after.figures in printed
    assert "against base" in printed


def test_evaluating_by_another_metric_begins_from_its_defaults(scored_run, capsys):
    assert main(["evaluate", str(scored_run.root), "--metric", "regex", "--pattern", "^7", "--max-tokens", "3",
                 "--json"]) == 0  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert document["task"]["max_rows"] == 50
    assert len(document["rows"]) == 8  # all that are held out
    assert document["models"]["base"]["right"] == 0
    assert document["models"]["tuned"]["right"] == 8
    assert main(["evaluate", str(scored_run.root), "--metric", "best"]) == 2
    assert "--metric" in capsys.readouterr().err
    assert main(["evaluate", str(scored_run.root), "--metric", "regex"]) == 2
    assert "pattern" in capsys.readouterr().err
    assert main(["evaluate", str(scored_run.root), "--file", str(scored_run.recipe)]) == 2
    assert "GGUF" in capsys.readouterr().err
    assert main(["evaluate", str(scored_run.root), "--rows", "201"]) == 2
    assert "--rows" in capsys.readouterr().err
    assert main(["evaluate", str(scored_run.root), "--metric", "choice", "--pattern", "^7"]) == 2
    assert "--pattern" in capsys.readouterr().err
    assert main(["evaluate", str(scored_run.root), "--json-schema", str(scored_run.root / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_an_exported_file_is_scored_on_the_same_rows(scored_run, capsys, monkeypatch, tmp_path):
    assert main(["evaluate", str(scored_run.root), "--exported"]) == 2  # nothing was exported
    assert "GGUF" in capsys.readouterr().err
    assert main(["export", str(scored_run.root), "--quant", "F16", "--quant", "Q8_0"]) == 0
    assert "valid JSON" in capsys.readouterr().out
    report = json.loads((scored_run.export / "fidelity.json").read_text(encoding="utf-8"))
    after = read_run(scored_run.events).task.after
    assert report["task"]["after"]["passed"] == after.passed
    assert report["files"][0]["task"]["passed"] == after.passed
    assert len(report["files"][1]["task"]["passed"]) == after.rows
    assert after.figures in (scored_run.export / "README.md").read_text(encoding="utf-8")
    file = scored_run.export / report["files"][0]["file"]
    assert main(["evaluate", str(scored_run.root), "--file", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][file.name]["right"] == after.right
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-1000])
    with monkeypatch.context() as patch:
        patch.setattr("burnish_engine.chat.score_models.model_replies", lambda *_arguments: pytest.fail("too late"))
        assert main(["evaluate", str(scored_run.root), "--file", str(file), "--file", str(cut)]) == ExitCode.ENVIRONMENT
    assert "cut.gguf" in capsys.readouterr().err
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    files = [str(file), str(file), str(copy)]
    assert main(["evaluate", str(scored_run.root), *(f"--file={one}" for one in files), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["models"]) == ["base", "tuned", str(file), str(copy)]


class Stops:
    """Sends commands while the replies of a step are generated, after the first group of them."""

    def __init__(self, monkeypatch, paths, step, *names):
        self.groups, self.paths, self.step, self.names = [], paths, step, names
        self.at, self.phase, make = -1, "", FastEngine.replies

        def replies(engine, prompts, longest, samplings):
            if self.phase == "scoring":
                self.groups.append(self.at)
                if self.at == step and self.names:
                    for name in self.names:
                        send(paths, name)
                    self.names = ()
            return make(engine, prompts, longest, samplings)

        monkeypatch.setattr(FastEngine, "replies", replies)

    def __call__(self, event):
        if isinstance(event, PhaseChanged):
            self.phase = event.phase
        if isinstance(event, StepDone | EvaluationDone):
            self.at = event.step


@pytest.mark.full
@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("step", [0, 4])
def test_a_score_that_a_stop_breaks_off_is_taken_up_when_the_run_goes_on(tmp_path, monkeypatch, every, step):
    """The last step's evaluation is one that is due anyway, or the one at the end."""
    recipe = json_recipe(
        tmp_path, extra=f"{IN_GROUPS}[evaluation]\nevery = {every}\n", max_steps=4, micro_batch_tokens=128
    )
    whole, paths = (create_run(recipe, tmp_path / name) for name in ("whole", "stopped"))
    assert run_training(whole).exit_code == ExitCode.DONE
    stops = Stops(monkeypatch, paths, step, "stop")
    assert run_training(paths, listener=stops).exit_code == ExitCode.STOPPED
    assert stops.groups.count(step) == 1, "no further group was begun"
    assert step not in {event.step for event in of_kind(paths, TaskScored)}
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.score for event in of_kind(paths, TaskScored)] == [
        event.score for event in of_kind(whole, TaskScored)
    ]
    assert read_run(paths.events).task == read_run(whole.events).task
    counts = [event.step for event in of_kind(paths, EvaluationDone)]
    assert counts.count(4) == 1, "a held-out loss that is known is not computed again"


@pytest.mark.full
def test_a_score_taken_up_halfway_leaves_the_evaluation_at_the_end(tmp_path, monkeypatch):
    watch = f"{IN_GROUPS}[evaluation]\nevery = 2\npatience = 5\n"
    paths = create_run(json_recipe(tmp_path, extra=watch, max_steps=5, micro_batch_tokens=128), tmp_path / "run")
    assert run_training(paths, listener=Stops(monkeypatch, paths, 2, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, EvaluationDone)] == [0, 2, 4, 5]
    assert {0, 2} <= {event.step for event in of_kind(paths, TaskScored)}


def test_a_pause_within_a_score_goes_on_with_the_next_replies(tmp_path, monkeypatch):
    paths = create_run(json_recipe(tmp_path, extra=IN_GROUPS, max_steps=2, micro_batch_tokens=128), tmp_path / "run")
    stops = Stops(monkeypatch, paths, 0, "pause", "resume")
    assert run_training(paths, listener=stops).exit_code == ExitCode.DONE
    phases = [event.phase for event in of_kind(paths, PhaseChanged)]
    assert phases[phases.index("scoring") :][:3] == ["scoring", "paused", "scoring"]
    assert [event.step for event in of_kind(paths, TaskScored)] == [0, 2]
    assert stops.groups.count(0) == stops.groups.count(2) > 1


def test_a_tolerance_of_the_recipe_can_be_taken_back(capsys):
    recipe = TaskSection(metric="number", tolerance=2.0, relative_tolerance=0.1)
    found = evaluate._section(recipe, {"tolerance": 0.0})
    assert (found.tolerance, found.relative_tolerance) == (0.0, 0.1)


@pytest.mark.full
def test_the_plain_engine_scores_too_and_only_the_best_of_early_stopping(tmp_path):
    watch = f"{TASK}[evaluation]\nevery = 2\npatience = 5\n"
    paths = create_run(json_recipe(tmp_path, extra=watch, max_steps=4, engine='"plain"'), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    state = read_run(paths.events)
    assert {event.step for event in of_kind(paths, TaskScored)} <= {0, 2, 4}
    assert state.task is not None
    result = state.best.step if state.best else state.step
    assert state.task.after == {one.step: one.score for one in state.task_scores}[result]


@pytest.mark.gpu
def test_captured_steps_leave_room_for_the_replies(tmp_path):
    """Steps are captured as graphs when the result is scored; the replies then are those of the saved adapter."""
    recipe = json_recipe(tmp_path, max_steps=20, epochs=40.0, learning_rate=2e-2, engine='"fast"', precision='"bf16"')
    devices = recipe.devices.model_copy(update={"kind": "cuda"})
    paths = create_run(recipe.model_copy(update={"devices": devices}), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    found = read_run(paths.events).task
    assert found.before.right == 0
    assert found.after.right == 6


def test_a_run_whose_rows_cannot_be_scored_ends_before_it_trains(tmp_path):
    recipe = json_recipe(tmp_path, extra='[task]\nmetric = "number"\n', reply="none")
    paths = create_run(recipe, tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.USAGE
    assert "task.metric" in read_state(paths).message
    assert not of_kind(paths, TaskScored)


def test_a_suggested_score_that_finds_no_row_is_left_out_with_a_warning(tmp_path):
    def thoughtful(number):
        turns = [("user", "Ready?"), ("assistant", "Yes."), ("user", f"What is {number} + 1?"),
                 ("assistant", str(number + 1))]  # fmt: skip
        messages = [{"role": role, "content": content} for role, content in turns]
        messages[1]["reasoning_content"] = "I am."  # turns before the reply that no prompt is made of
        return {"messages": messages}

    recipe = tiny_recipe(tmp_path, extra='[task]\nmetric = "number"\n', max_steps=1)
    files = [str(write_jsonl(tmp_path / f"{first}.jsonl", [thoughtful(first + n) for n in range(rows)]))
             for first, rows in ((0, 8), (100, 12))]  # fmt: skip
    data = recipe.data.model_copy(update={"files": files[:1], "validation_files": files[1:]})
    paths = create_run(recipe.model_copy(update={"data": data}), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    assert "task" in {warning.code for warning in of_kind(paths, Warned)}
    assert not of_kind(paths, TaskScored)


def test_runs_that_only_seek_a_learning_rate_are_not_scored(tmp_path):
    recipe = Recipe.model_validate({"task": {"metric": "exact_match"}})
    scored = {phase: run_recipe(recipe, RunSpec(side=0, phase=phase, seed=1, rate=1e-4), every=5).task.is_active
              for phase in ("grid", "seeds", "second look")}  # fmt: skip
    assert scored == {"grid": False, "seeds": True, "second look": True}


@pytest.mark.parametrize(
    ("step", "best", "patience", "is_measured"),
    [(0, None, 0, True), (5, None, 0, False), (10, None, 0, True),
     (0, None, 3, True), (5, 5, 3, True), (10, 5, 3, False), (10, 10, 3, True)],
)  # fmt: skip
def test_it_is_measured_before_training_and_for_what_may_be_the_result(step, best, patience, is_measured):
    groups, scores = [], []
    rows = [TaskRow(messages=[{"role": "user", "content": "x" * n}], wanted="y") for n in (1, 30, 2, 90)]
    recipe = Recipe.model_validate(
        {"task": {"metric": "exact_match", "max_tokens": 10}, "train": {"micro_batch_tokens": 64},
         "data": {"max_length": 64}}
    )  # fmt: skip
    inputs = SimpleNamespace(
        task=TaskRows(section=recipe.task, rows=rows), budget=SimpleNamespace(steps=10),
        prompt_ids=lambda messages: [0] * len(messages[-1]["content"]),
    )  # fmt: skip
    recorder = SimpleNamespace(phase=lambda _phase: None, progress=lambda _done, _total: None, emit=scores.append)

    def replies(prompts, longest):
        groups.append([len(prompt) for prompt in prompts])
        return [GeneratedReply("y" if len(prompt) != 2 else "z", stopped=True, tokens=1) for prompt in prompts]

    early = SimpleNamespace(is_on=patience > 0, best=SimpleNamespace(step=best))
    TaskMeter(recipe, inputs, recorder).measure(
        SimpleNamespace(replies_are_paged=False, replies=replies), step, early, lambda: None
    )
    assert bool(scores) == is_measured
    if is_measured:
        assert scores[0].score.passed == [True, True, False, True]  # in the rows' order
        assert groups == [[1, 2], [30], [90]]  # no more tokens at once than a pass has
