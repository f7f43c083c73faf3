"""Runs that learn from preference pairs, on both engines, from recipe and files to events and adapter."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.run.events import EvaluationDone, GuardReported, PhaseChanged, RunStarted, StepDone
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.runs import losses, of_kind, tiny_recipe
from support.tiny import make_llama, write_jsonl

SHORT = {"max_steps": 4, "epochs": 4.0, "checkpoint_every": 2, "accumulation": 2}


def pair(number):
    asked = [{"role": "user", "content": f"Lamp {number}?"}]
    return {
        "prompt": asked,
        "chosen": [{"role": "assistant", "content": "Gladly. " * (number % 3 + 1)}],
        "rejected": [{"role": "assistant", "content": "No."}],
    }


@pytest.fixture
def made(tmp_path):
    """Make a run over pairs: (settings of the objective, of [train]) -> its paths."""
    count = iter(range(99))

    def make(objective="dpo", pairs=12, method="lora", dropout=0.0, **settings):
        preference = "\n".join(f"{key} = {value}" for key, value in settings.pop("preference", {}).items())
        recipe = tiny_recipe(
            tmp_path,
            extra=f'[preference]\nobjective = "{objective}"\n{preference}\n[evaluation]\nevery = 2\n',
            **SHORT | settings,
        )
        data = write_jsonl(tmp_path / "pairs.jsonl", [pair(number) for number in range(pairs)])
        held_out = write_jsonl(tmp_path / "held pairs.jsonl", [pair(number) for number in range(50, 54)])
        files = {"files": [str(data)], "validation_files": [str(held_out)]}
        sections = {
            "data": recipe.data.model_copy(update=files),
            "adapter": recipe.adapter.model_copy(update={"method": method, "dropout": dropout}),
        }
        return create_run(recipe.model_copy(update=sections), tmp_path / f"run {next(count)}")

    return make


@pytest.mark.parametrize("objective", ["dpo", "orpo", "simpo"])
def test_both_engines_learn_the_preference_with_the_same_figures(made, objective):
    fast, plain = (made(objective, engine=f'"{engine}"') for engine in ("fast", "plain"))
    for paths in (fast, plain):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert [of_kind(paths, RunStarted)[0].engine for paths in (fast, plain)] == ["fast", "plain"]
    for kind in (StepDone, EvaluationDone):
        for ours, theirs in zip(of_kind(fast, kind), of_kind(plain, kind), strict=True):
            for name in ("loss", "margin", "accuracy", "chosen_log_prob", "rejected_log_prob"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-3, abs=1e-4), name
    steps, held_out = of_kind(fast, StepDone), of_kind(fast, EvaluationDone)
    assert steps[-1].loss < steps[0].loss
    assert held_out[-1].margin > held_out[0].margin
    assert all(report.verdict == "training" for report in of_kind(fast, GuardReported))


def test_dpo_begins_where_the_reference_is(made):
    paths = made()
    run_training(paths)
    first, before = of_kind(paths, StepDone)[0], of_kind(paths, EvaluationDone)[0]
    for event in (first, before):
        assert event.loss == pytest.approx(math.log(2), rel=1e-4)
        assert event.margin == pytest.approx(0.0, abs=1e-4)


def test_the_reference_is_computed_once_for_the_same_weights_and_pairs(made, tmp_path):
    def computed(paths):
        run_training(paths)
        return any(event.phase == "preparing" and event.detail for event in of_kind(paths, PhaseChanged))

    assert computed(made())
    assert not computed(made(learning_rate=1e-3))
    assert computed(made(pairs=11))
    assert not computed(made("simpo"))
    for path in (user_cache_dir() / "references").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert computed(made())
    for path in (user_cache_dir() / "references").iterdir():
        np.savez(path, train=np.zeros((1, 2), np.float32), held_out=np.zeros((1, 2), np.float32))
    assert computed(made()), "numbers of other pairs"
    shutil.rmtree(tmp_path / "base")
    make_llama(tmp_path / "base", seed=1)
    assert computed(made()), "another model under the same name"


@pytest.mark.parametrize(
    ("engine", "method", "dropout"), [("fast", "lora", 0.1), ("fast", "dora", 0.0), ("plain", "lora", 0.1)]
)
def test_a_resumed_run_makes_the_same_steps(made, engine, method, dropout):
    whole, halved = (made(engine=f'"{engine}"', method=method, dropout=dropout) for _ in range(2))
    run_training(whole)

    def listen(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(halved, "stop_now")

    assert run_training(halved, listener=listen).exit_code == ExitCode.STOPPED
    for path in (user_cache_dir() / "references").iterdir():
        path.unlink()
    assert run_training(halved).exit_code == ExitCode.DONE
    assert losses(halved) == losses(whole)
