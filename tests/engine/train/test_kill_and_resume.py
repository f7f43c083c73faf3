"""Kill the engine at any moment, resume, and get the uninterrupted run's losses, bit for bit, under dropout."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from burnish_engine.contract.events import RunStarted
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_state, summarize

from support.runs import EngineServer, evaluations, losses, tiny_recipe

KILLS = 20
SAVE_KILLS = 6  # of these, in the middle of writing a checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks; the engine itself does not"),
]


def test_every_kill_resumes_to_the_uninterrupted_losses(tmp_path):
    recipe = tiny_recipe(tmp_path, rows=40, epochs=4.0, accumulation=2)
    assert recipe.adapter.dropout > 0
    server = EngineServer()
    try:
        whole = create_run(recipe, tmp_path / "whole")
        server.start(whole)
        began = time.monotonic()
        assert server.wait() == 0
        duration = time.monotonic() - began
        expected, expected_evaluations = losses(whole), evaluations(whole)
        assert engines(whole) == {"fast"}
        assert len(expected) > 12

        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        chance = random.Random(seed)
        moments = set()
        for number in range(KILLS):
            paths = create_run(recipe, tmp_path / f"killed {number}")
            pid = server.start(paths)
            if number < SAVE_KILLS:
                wait_for_save(paths, skip=chance.randrange(4), delay_s=chance.random() * 0.01)
            else:
                time.sleep(chance.random() * duration)
            with suppress(ProcessLookupError):  # it may have finished just now
                os.kill(pid, signal.SIGKILL)
            if server.wait() == 0:
                assert losses(paths) == expected  # it was done already
                continue
            moments.add((summarize(paths).state.phase, len(losses(paths))))
            if read_state(paths).status == "running":
                assert summarize(paths).standing == "interrupted"
            server.start(paths)
            assert server.wait() == 0, f"seed {seed}, kill {number}: {read_state(paths).message}"
            assert losses(paths) == expected, f"seed {seed}, kill {number}"
            assert evaluations(paths) == expected_evaluations, f"seed {seed}, kill {number}"
            assert engines(paths) == {"fast"}
        assert len(moments) > 3  # the kills really hit different moments
    finally:
        server.close()


def engines(paths):
    """Which engines trained a run."""
    return {event.engine for event in read_events(paths.events) if isinstance(event, RunStarted)}


def wait_for_save(paths, *, skip, delay_s):
    """Return while a checkpoint is being written (after `skip` finished ones)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = len(list(paths.checkpoints.glob("step-*"))) if paths.checkpoints.exists() else 0
        if done >= min(skip, 2) and paths.checkpoints.exists() and list(paths.checkpoints.glob(".*.partial")):
            time.sleep(delay_s)
            return
        if read_state(paths).status in ("finished", "failed"):
            return
