"""From a dataset to a chatting, verified GGUF, through the command line; and runs that are queued, killed, resumed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.runs.store import list_runs, open_run, read_state, summarize

from support.runs.tiny_runs import losses, tiny_recipe


@pytest.fixture
def recipe_file(tmp_path):
    """A tiny recipe on disk: (settings of [train]) -> path."""

    def write(name="recipe.toml", **settings):
        path = tmp_path / name
        path.write_text(dump_recipe(tiny_recipe(tmp_path, **settings)), encoding="utf-8")
        return path

    return write


def burnish(*arguments, **options):
    """Start `burnish` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "burnish_engine.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def wait_until(condition, timeout_s=600):
    """Wait for a condition; fail the test if it never comes."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("waited in vain")


@pytest.mark.full
def test_train_talk_export_verify(recipe_file, capsys, tmp_path):
    assert main(["train", str(recipe_file(max_steps=30, epochs=10.0, learning_rate=2e-2))]) == 0
    assert "burnish export" in capsys.readouterr().out
    assert main(["runs", "list", "--json"]) == 0
    assert [run["standing"] for run in json.loads(capsys.readouterr().out)] == ["finished"]
    assert main(["runs", "show", "last"]) == 0
    assert "held-out loss at step 30" in capsys.readouterr().out

    talk = ["--prompt", "My lamp number 3 is broken?", "--max-tokens", "8"]
    replies = {}
    for name, arguments in {"tuned": ["last"], "base": ["last", "--base"], "again": ["last"]}.items():
        assert main(["chat", *arguments, *talk]) == 0
        replies[name] = capsys.readouterr().out
    assert replies["tuned"] == replies["again"]
    assert replies["tuned"] != replies["base"]

    for kind in ("adapter", "safetensors"):
        assert main(["export", "last", "--to", kind]) == 0
        capsys.readouterr()
    run = list_runs()[0].paths
    assert (run.export / "adapter" / "adapter_model.safetensors").is_file()
    assert (run.export / "safetensors" / "model.safetensors").is_file()


@pytest.mark.full
def test_unknown_quant_and_unfinished_runs_are_refused(recipe_file, capsys, tmp_path):
    assert main(["train", str(recipe_file(max_steps=1))]) == 0
    assert main(["export", "last", "--quant", "Q9_Z"]) == 2
    assert "Q8_0" in capsys.readouterr().err
    run = list_runs()[0].paths
    for file in run.adapter.iterdir():
        file.unlink()
    assert main(["export", "last"]) == 2
    assert "no adapter yet" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.slow
def test_kill_and_resume_through_the_command_line(recipe_file, tmp_path, capsys):
    recipe = recipe_file(max_steps=400, epochs=500.0, checkpoint_every=5)
    process = burnish("train", recipe, "--run-dir", tmp_path / "run")
    wait_until(lambda: (tmp_path / "run" / "checkpoints").exists() and len(losses(open_run(tmp_path / "run"))) > 12)
    os.kill(process.pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
    process.wait()
    run = open_run(tmp_path / "run")
    assert summarize(run).status == "interrupted"
    seen = losses(run)

    resumed = burnish("runs", "resume", run.root)
    wait_until(lambda: len(losses(run)) > len(seen) + 5)
    assert main(["runs", "pause", str(run.root)]) == 0
    assert summarize(run).status == "paused"
    steps = len(losses(run))
    assert main(["runs", "resume", str(run.root)]) == 0
    wait_until(lambda: len(losses(run)) > steps)
    assert main(["runs", "checkpoint", str(run.root)]) == 0
    assert main(["runs", "suspend", str(run.root)]) == 0
    assert resumed.wait(60) == 20
    assert summarize(run).status == "suspended"
    assert {step: losses(run)[step] for step in seen} == seen  # the same losses as before the kill
    capsys.readouterr()
    assert main(["runs", "stop", str(run.root)]) == 2
    assert "is suspended" in capsys.readouterr().err
    assert main(["runs", "delete", str(run.root), "--yes"]) == 0
    assert not run.root.exists()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_saves_and_a_busy_device_queues(recipe_file, tmp_path, capsys):
    long, short = recipe_file("long.toml", max_steps=5000, epochs=1000.0), recipe_file("short.toml", max_steps=3)
    process = burnish("train", long, "--run-dir", tmp_path / "long")
    wait_until(lambda: (tmp_path / "long" / "events.jsonl").exists() and losses(open_run(tmp_path / "long")))
    assert main(["train", str(short), "--run-dir", str(tmp_path / "refused")]) == 16
    assert "--queue" in capsys.readouterr().err
    assert main(["train", str(short), "--run-dir", str(tmp_path / "short"), "--queue"]) == 0
    assert read_state(open_run(tmp_path / "short")).status == "queued"
    assert main(["runs", "queue"]) == 0
    assert f"1. {tmp_path / 'short'} waits for cpu, which {tmp_path / 'long'} uses" in capsys.readouterr().out
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 20
    long_run = open_run(tmp_path / "long")
    assert summarize(long_run).status == "stopped"
    assert list(long_run.checkpoints.glob("step-*/COMPLETE"))
    # The process that ended started the queued run, detached from any terminal.
    wait_until(lambda: read_state(open_run(tmp_path / "short")).status == "finished")
    wait_until(lambda: "burnish export" in (tmp_path / "short" / "stdout.log").read_text())  # said after the end
