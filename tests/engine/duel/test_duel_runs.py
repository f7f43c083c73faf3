"""Whole duels with real processes: one left alone, one killed and interrupted over and over, with the same result."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.duel.state import open_duel
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.process import is_alive
from burnish_engine.runs.store import read_state

from support.runs.tiny_runs import tiny_recipe

OPTIONS = ("--factors", "0.5,1", "--extend", "0", "--evaluations", "2")


@pytest.fixture
def files(tmp_path):
    """Two recipes that differ in rank."""
    recipe = tiny_recipe(tmp_path, rows=24, max_steps=6, learning_rate=1e-2)
    found = []
    for rank in (2, 8):
        adapter = recipe.adapter.model_copy(update={"rank": rank, "alpha": 2.0 * rank})
        found.append(tmp_path / f"rank{rank}.toml")
        found[-1].write_text(dump_recipe(recipe.model_copy(update={"adapter": adapter})), encoding="utf-8")
    return found


def start(*arguments):
    """`burnish duel` as a process of its own."""
    command = [sys.executable, "-m", "burnish_engine.cli.main", "duel", *map(str, arguments)]
    # A shell that runs the tests in the background has them ignore Ctrl-C, which a child would inherit.
    heed = None if os.name == "nt" else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed,  # noqa: PLW1509
    )


def figures_of(folder):
    """What does not depend on how fast the machine was."""
    _, state = open_duel(folder)
    assert state.status == "finished"
    runs = [
        (one.spec, one.ended, one.held_out_loss, one.steps, one.tokens, one.instability, one.conditions,
         [(point.step, point.tokens, point.loss) for point in (*one.training, *one.evaluations)])
        for one in state.outcomes
    ]  # fmt: skip
    losses = [verdict for verdict in state.verdicts if verdict.measure in ("held_out_loss", "instability")]
    return runs, losses, state.checks


def wait_for(condition, timeout_s=600):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("waited in vain")


def runs_of(folder):
    return [RunPaths(path) for path in sorted((folder / "runs").glob("*")) if (path / "state.json").is_file()]


def going_on(folder):
    """The run whose process is at work, once it has made a step."""
    for paths in runs_of(folder):
        state = read_state(paths)
        if state.status == "running" and is_alive(state.pid, state.process_created) and state.step:
            return paths, state.pid
    return None


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_duel_that_is_killed_and_interrupted_ends_as_one_left_alone(files, tmp_path, capfd):
    whole = tmp_path / "whole"
    assert main(["duel", *map(str, files), *OPTIONS, "--out", str(whole)]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert printed.index("adapter.rank") < printed.index("run 1 of 10")
    assert "held-out loss:" in printed
    assert (whole / "report.html").is_file()
    expected = figures_of(whole)
    runs, _, checks = expected
    assert len(runs) >= 10
    assert {one.verdict for one in checks} == {"same"}
    assert not any(list(paths.checkpoints.glob("*")) for paths in runs_of(whole))

    broken = tmp_path / "broken"
    duel = start(*files, *OPTIONS, "--out", broken)
    # The duel alone is killed: its run continues without it, and is found again.
    wait_for(lambda: (broken / "runs").is_dir() and going_on(broken))
    duel.kill()
    duel.wait()
    # Duel and run are killed.
    duel = start("--resume", broken)
    wait_for(lambda: len(open_duel(broken)[1].outcomes) >= 2 and going_on(broken))
    duel.kill()
    duel.wait()
    found = going_on(broken)
    if found:
        os.kill(found[1], signal.SIGKILL)
    # Ctrl-C: the run is saved.
    duel = start("--resume", broken)
    wait_for(lambda: len(open_duel(broken)[1].outcomes) >= 4 and going_on(broken))
    duel.send_signal(signal.SIGINT)
    said, _ = duel.communicate(timeout=600)
    assert duel.returncode == 20, said
    assert "burnish duel --resume" in said
    assert going_on(broken) is None
    # Killed between two runs.
    duel = start("--resume", broken)
    wait_for(lambda: len(open_duel(broken)[1].outcomes) >= 6)
    duel.kill()
    duel.wait()
    duel = start("--resume", broken)
    said, _ = duel.communicate(timeout=600)
    assert duel.returncode == 0, said

    assert figures_of(broken) == expected
    for paths in runs_of(broken):
        fresh = [event for event in read_events(paths.events) if isinstance(event, RunStarted)]
        assert len([event for event in fresh if event.resumed_from_step is None]) <= 2
    assert main(["duel", "--resume", str(broken), "--json"]) == 0  # nothing is left to do
    assert json.loads(capfd.readouterr().out)["status"] == "finished"


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_diverging_side_is_counted_and_another_failure_ends_the_duel_until_it_is_mended(files, tmp_path, capfd):
    for file, alpha, rate in zip(files, (4.0, 4096.0), (1e-2, 1.0), strict=True):  # numbers beyond what fp16 can hold
        recipe = load_recipe(file)
        adapter = recipe.adapter.model_copy(update={"alpha": alpha})
        train = recipe.train.model_copy(update={"learning_rate": rate, "precision": "fp16"})
        file.write_text(dump_recipe(recipe.model_copy(update={"train": train, "adapter": adapter})), encoding="utf-8")
    folder = tmp_path / "duel"
    data = tmp_path / "held.jsonl"
    kept = data.read_bytes()

    duel = start(*files, "--factors", "1", "--out", folder)
    wait_for(lambda: len(open_duel(folder)[1].outcomes) >= 1 if (folder / "duel.json").exists() else False)
    data.write_text("no JSON\n")
    said, _ = duel.communicate(timeout=600)
    assert duel.returncode == 11, said
    assert "of this duel failed" in said
    data.write_bytes(kept)
    main(["duel", "--resume", str(folder)])
    printed = " ".join(capfd.readouterr().out.split())
    _, state = open_duel(folder)
    assert state.status == "finished"
    bad = [one for one in state.outcomes if one.spec.side == 1]
    assert len(bad) == 3
    assert {one.ended for one in bad} == {"diverged"}
    assert all(one.instability.non_finite for one in bad)
    assert "3 of 3" in printed
    verdict = state.verdicts[0]
    assert (verdict.kind, verdict.winner, verdict.diverged) == ("not distinguishable", None, (0, 3))
    assert "3 of 3 runs diverged" in (folder / "report.html").read_text(encoding="utf-8")
