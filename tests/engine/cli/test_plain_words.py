"""What a newcomer reads: what is running, how it ended, and what to type next."""

import json
import logging
import shlex
import sys

import pytest

from burnish_engine.cli.main import main
from burnish_engine.cli.terminal import typed, typed_run
from burnish_engine.cli.training.progress import RunProgress, progress_text
from burnish_engine.contract.paths import RunPaths, fetched_model_dir, runs_dir
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.run.events import (
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RunEnded,
    RunMeasurement,
    RunStarted,
    StepDone,
)
from burnish_engine.contract.wording.tables import CHECKS
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.store import create_run, read_state, write_state

from support.runs.tiny_runs import tiny_recipe


def said(capsys, *arguments, code=0):
    """What a command prints on both streams, as one line each: the terminal may have broken it anywhere."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    return " ".join(printed.out.split()), " ".join(printed.err.split())


PLAN = PlanMade(memory_bytes=5_900_000_000, memory_free_bytes=8 * 10**9, tokens_per_s=9.0, seconds=720.0, fits=True)


def step(number, *, eta_s=60.0, memory_bytes=2_000_000_000, process_bytes=0):
    return StepDone(
        step=number, epoch=0.0, loss=2.5, learning_rate=1e-3, grad_norm=1.0, tokens=100, supervised_tokens=50,
        tokens_per_s=100.0, supervised_tokens_per_s=50.0, step_s=1.0, memory_bytes=memory_bytes, eta_s=eta_s,
        process_bytes=process_bytes,
    )  # fmt: skip


def numbered(*events):
    return [event.model_copy(update={"seq": number}) for number, event in enumerate(events)]


def test_what_our_modules_log_is_said_once_on_standard_error(capsys):
    main(["--version"])
    main(["--version"])
    capsys.readouterr()
    logging.getLogger("burnish_engine.models.checkpoint.embedded").info("Unpacking [it]...")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "Unpacking [it]...\n")


@pytest.mark.full
def test_a_whole_training_in_a_log_tells_stages_the_prediction_and_what_came_of_it(tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(dump_recipe(tiny_recipe(tmp_path, max_steps=3)), encoding="utf-8")
    text, _ = said(capsys, "train", recipe, "--run-dir", tmp_path / "my run")
    stages = ["Opening the model...", "Preparing the data...", "predicted ", "Reading held-out rows...",
              "step 3 ", "Saving...", "Memory: predicted ", "Done."]  # fmt: skip
    places = [text.find(stage) for stage in stages]
    assert -1 not in places
    assert places == sorted(places)
    # The run does not lie in the usual folder, so its name alone would not find it.
    assert f"burnish chat {shlex.quote(str(tmp_path / 'my run'))} or" in text or sys.platform == "win32"


def test_a_log_gets_a_line_every_ten_seconds_and_the_last_step(monkeypatch, capsys):
    now = iter([0.0, 4.0, 9.9, 10.1, 15.0, 16.0])
    monkeypatch.setattr("burnish_engine.cli.training.progress.time.monotonic", lambda: next(now))
    with RunProgress() as progress:
        started = RunStarted(
            run="r", pid=1, process_created=1, device="CPU", precision="fp32", engine="fast", total_steps=6
        )
        for event in numbered(started, *(step(number) for number in range(1, 7))):
            progress.show(event)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["1", "4", "6"]


def test_stages_before_the_first_step_are_ticked_off_with_their_seconds(capsys):
    phases = [PhaseChanged(phase=phase) for phase in ("loading", "weights", "checking", "training")]
    steps = [step(1), PhaseChanged(phase="evaluating"), PhaseChanged(phase="training"), step(2)]
    timed = [one.model_copy(update={"t": 100.0 + 7 * at}) for at, one in enumerate(numbered(*phases, *steps))]
    with RunProgress() as progress:
        for event in timed:
            progress.show(event)
    ticks = [line for line in capsys.readouterr().out.splitlines() if line.endswith(": 7 s")]
    assert len(ticks) == 4, "three stages and the first step; none after it"
    assert "first step" in ticks[-1]


def test_the_reference_of_preferences_is_named_and_not_called_reading_data(capsys):
    phases = [PhaseChanged(phase="preparing"), PhaseChanged(phase="preparing", detail="log-probabilities of X")]
    with RunProgress() as progress:
        for event in numbered(*phases, PhaseChanged(phase="training")):
            progress.show(event)
    said = capsys.readouterr().out
    assert said.count("log-probabilities of X") == 2, "when it begins and when it is done"
    assert said.count("Preparing the data") == 2


def test_the_check_that_is_made_is_named_and_counted():
    text = progress_text(PhaseProgress(done=8, total=14, unit="checks", what="leak"))
    assert "9 of 14" in text
    assert CHECKS["leak"] in text
    assert "of a newer version" in progress_text(
        PhaseProgress(done=0, total=1, unit="checks", what="of a newer version")
    )
    assert progress_text(PhaseProgress(done=3, total=28, unit="layers")) == "3 of 28 layers"


@pytest.mark.parametrize(
    ("phase", "words"),
    [("training", "after this step"), ("evaluating", "after this evaluation"), ("saving", "Saving already")],
)
def test_ctrl_c_is_answered_according_to_what_is_going_on(capsys, phase, words):
    with RunProgress() as progress:
        progress.show(PhaseChanged(phase=phase))
        progress.stopping()
    error = capsys.readouterr().err
    assert words in error
    assert "again to stop at once without saving" in error


def test_prediction_and_measurement_stand_beside_each_other():
    first, *others = numbered(step(1), PLAN, step(2, memory_bytes=6_100_000_000), step(3))
    with RunProgress() as progress:
        progress.show(first)
        assert progress.memory_line() == ""
        for event in others:
            progress.show(event)
    assert "predicted 5.5 GiB, measured 5.7 GiB" in progress.memory_line()


def test_the_whole_process_is_what_counts_as_measured():
    """Predictions are of the whole process, context included; torch's own peak would not be comparable."""
    ended = RunEnded(outcome="finished", exit_code=0, step=1, measured=RunMeasurement(process_bytes=6_700_000_000))
    done = step(1, memory_bytes=6_100_000_000, process_bytes=6_600_000_000)
    plan, done, ended = numbered(PLAN, done, ended)
    with RunProgress() as progress:
        progress.show(plan)
        progress.show(done)
        assert "measured 6.1 GiB" in progress.memory_line()
        progress.show(ended)
    assert "measured 6.2 GiB" in progress.memory_line()


def test_a_run_is_shown_with_what_was_predicted_and_measured(finished, capsys):
    writer = EventWriter(finished.events)
    later = PLAN.model_copy(update={"memory_bytes": 5_000_000_000})
    for event in (PLAN, step(1, process_bytes=9_000_000_000), later, step(2, process_bytes=5_200_000_000)):
        writer.write(event)
    writer.close()
    assert "Memory: predicted 4.7 GiB, measured 4.8 GiB." in said(capsys, "runs", "show", "lamp-2026")[0]
    shown = json.loads(said(capsys, "runs", "show", "lamp-2026", "--json")[0])
    assert (shown["predicted_bytes"], shown["measured_bytes"]) == (5_000_000_000, 5_200_000_000)


def test_an_argument_is_shown_as_it_has_to_be_typed():
    assert typed("recipe.toml") == "recipe.toml"
    assert typed("my recipe.toml") == ('"my recipe.toml"' if sys.platform == "win32" else "'my recipe.toml'")


def test_a_run_is_named_by_name_or_by_folder(tmp_path):
    assert typed_run(RunPaths(runs_dir() / "lamp")) == "lamp"
    assert str(tmp_path / "lamp") in typed_run(RunPaths(tmp_path / "lamp"))


@pytest.fixture
def finished(tmp_path):
    """A finished run called lamp."""
    paths = create_run(Recipe(), runs_dir() / "lamp-2026")
    write_state(paths, read_state(paths).model_copy(update={"status": "finished"}))
    return paths


@pytest.mark.parametrize("command", ["stop", "pause", "suspend"])
def test_a_finished_run_has_nothing_to_stop(finished, capsys, command):
    _, error = said(capsys, "runs", command, "last", code=2)
    assert f"is finished; there is nothing to {command}." in error
    assert "Resume" not in error


def test_a_stopped_run_can_be_resumed_before_it_is_paused(finished, capsys):
    write_state(finished, read_state(finished).model_copy(update={"status": "stopped"}))
    _, error = said(capsys, "runs", "pause", "last", code=2)
    assert "is stopped; there is nothing to pause. Resume it first." in error


@pytest.mark.parametrize(
    ("given", "meant"), [("lst", "last"), ("lamp-2062", "lamp-2026"), ("embeded", "embedded"), ("Qwen3", None)]
)
def test_a_name_nobody_has_brings_the_close_ones(finished, capsys, given, meant):
    _, error = said(capsys, "chat", given, code=2)
    assert (f"Did you mean {meant}?" in error) if meant else ("Did you mean" not in error)


def test_a_model_that_is_not_here_brings_the_close_ones_that_are(capsys):
    fetched_model_dir("Qwen/Qwen3-0.6B").mkdir(parents=True)
    _, error = said(capsys, "chat", "Qwen/Qwen3-06B", code=2)
    assert "Did you mean Qwen/Qwen3-0.6B, which is here?" in error
    assert "burnish models fetch Qwen/Qwen3-06B" in error
    _, error = said(capsys, "chat", "someone/else", code=2)
    assert "Did you mean" not in error


@pytest.mark.parametrize(
    ("recipe", "data", "written"),
    [
        ("recipe.toml", "chats.jsonl", "chats.jsonl"),
        ("recipe.toml", "data/chats.jsonl", "data/chats.jsonl"),
        ("recipes/a.toml", "data/chats.jsonl", "../data/chats.jsonl"),
        ("data/a.toml", "data/chats.jsonl", "chats.jsonl"),
        ("deep/er/a.toml", "data/chats.jsonl", None),
    ],
)
def test_a_new_recipe_names_data_near_it_relative(tmp_path, monkeypatch, capsys, recipe, data, written):
    file = tmp_path / data
    for folder in (file.parent, (tmp_path / recipe).parent):
        folder.mkdir(parents=True, exist_ok=True)
    file.write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    said(capsys, "recipe", "new", recipe, "--data", data)
    text = (tmp_path / recipe).read_text(encoding="utf-8")
    assert (f'files = ["{written}"]' in text) if written else (".." not in text)
    assert load_recipe(tmp_path / recipe).data.files[0].endswith(data.rpartition("/")[2])
    (found,) = load_recipe(tmp_path / recipe).data.files
    assert file.samefile(found)


def test_a_new_recipe_keeps_an_absolute_path_and_a_models_name(tmp_path, capsys):
    data = tmp_path / "chats.jsonl"
    said(capsys, "recipe", "new", tmp_path / "r.toml", "--data", data, "--model", "Qwen/Qwen3-0.6B")
    recipe = load_recipe(tmp_path / "r.toml")
    assert (recipe.data.files, recipe.model.path) == ([str(data)], "Qwen/Qwen3-0.6B")
    assert str(data) in (tmp_path / "r.toml").read_text(encoding="utf-8").replace("\\\\", "\\")


def test_a_plan_says_what_its_time_leaves_out_and_why_it_knows_none(tmp_path, capsys):
    path = tmp_path / "recipe.toml"
    path.write_text(dump_recipe(tiny_recipe(tmp_path)), encoding="utf-8")
    text, _ = said(capsys, "plan", path)
    assert "training time" in text
    assert "Loading comes on top" in text
    text, _ = said(capsys, "plan", path, "--skip-data")
    assert "training time unknown" in text
    assert "--skip-data" in text


def test_a_plan_for_a_model_that_is_not_here_says_how_its_data_can_be_read(tmp_path, capsys, monkeypatch):
    recipe = tiny_recipe(tmp_path).model_copy(update={"model": ModelSection(path="Qwen/Qwen3-0.6B")})
    path = tmp_path / "recipe.toml"
    path.write_text(dump_recipe(recipe), encoding="utf-8")
    main(["plan", str(path)])
    assert "burnish models fetch Qwen/Qwen3-0.6B" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("group", [[], ["models"], ["runs"], ["recipe"], ["bench"]])
def test_lists_of_commands_are_whole_in_80_columns(capsys, monkeypatch, group):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group, "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert len(commands) > 3
    assert [line for line in commands if line.endswith("...")] == []
