"""Runs that learn from preference pairs, on both engines, from recipe and files to events and adapter."""

from __future__ import annotations

import math
import shutil
import zipfile
from itertools import pairwise

import numpy as np
import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.run.events import (
    DataReady,
    EvaluationDone,
    GuardReported,
    PhaseChanged,
    PhaseProgress,
    RunStarted,
    StepDone,
    Warned,
)
from burnish_engine.runs import recorder
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_recipe
from burnish_engine.train.guard import preference_watch
from burnish_engine.train.run import run_training

from support.models.tiny import make_llama, write_jsonl
from support.runs.tiny_runs import losses, of_kind, tiny_recipe

SHORT = {"max_steps": 4, "epochs": 4.0, "checkpoint_every": 2, "accumulation": 2}

FIGURES = (
    "loss", "margin", "accuracy", "chosen_log_prob", "rejected_log_prob", "preference_loss", "sft_loss", "kl",
)  # fmt: skip
MISSING = {"dpo": {"sft_loss", "kl"}, "orpo": {"kl"}, "simpo": {"sft_loss", "kl"}, "kto": {"sft_loss"}}
NEUTRAL = {"dpo": math.log(2), "kto": 0.5, "orpo": -1.0, "simpo": -1.0}
"""Loss where the model is its reference; -1: there is none."""


def pair(number):
    asked = [{"role": "user", "content": f"Lamp {number}?"}]
    return {
        "prompt": asked,
        "chosen": [{"role": "assistant", "content": "Gladly. " * (number % 3 + 1)}],
        "rejected": [{"role": "assistant", "content": "No."}],
    }


def labeled(number):
    good = number % 3 != 0
    reply = "Gladly. " * (number % 3 + 1) if good else f"No, not {number}."
    return {"prompt": f"Lamp {number}?", "completion": reply, "label": good}


@pytest.fixture
def made(tmp_path):
    """Make a run over pairs: (settings of the objective, of [train]) -> its paths."""
    count = iter(range(99))

    def make(objective="dpo", pairs=12, first=0, held_out=4, method="lora", dropout=0.0, quantize="none", **settings):
        preference = "\n".join(f"{key} = {value}" for key, value in settings.pop("preference", {}).items())
        recipe = tiny_recipe(
            tmp_path,
            extra=f'[preference]\nobjective = "{objective}"\n{preference}\n[evaluation]\nevery = 2\n',
            **SHORT | settings,
        )
        row = labeled if objective == "kto" else pair
        data = write_jsonl(tmp_path / f"{objective}.jsonl", [row(first + number) for number in range(pairs)])
        held_out = write_jsonl(tmp_path / f"held {objective}.jsonl", [row(50 + number) for number in range(held_out)])
        files = {"files": [str(data)], "validation_files": [str(held_out)]}
        sections = {
            "data": recipe.data.model_copy(update=files),
            "adapter": recipe.adapter.model_copy(update={"method": method, "dropout": dropout}),
            "model": recipe.model.model_copy(update={"quantize": quantize}),
        }
        return create_run(recipe.model_copy(update=sections), tmp_path / f"run {next(count)}")

    return make


def same_figures(objective, fast, plain, *, rel=1e-3):
    """Train both; their steps and evaluations have the same figures."""
    for paths in (fast, plain):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert [of_kind(paths, RunStarted)[0].engine for paths in (fast, plain)] == ["fast", "plain"]
    for kind in (StepDone, EvaluationDone):
        for ours, theirs in zip(of_kind(fast, kind), of_kind(plain, kind), strict=True):
            figures = [{name: getattr(event, name) for name in FIGURES} for event in (ours, theirs)]
            first, second = ({name: one for name, one in known.items() if one is not None} for known in figures)
            assert not first.keys() & MISSING[objective]
            assert {*first, *MISSING[objective]} >= {"loss", "accuracy", "preference_loss", "sft_loss", "kl"}
            if ours.loss == pytest.approx(NEUTRAL[objective], rel=1e-4):  # nothing is preferred yet but by rounding
                del first["accuracy"], second["accuracy"]
            assert first == pytest.approx(second, rel=rel, abs=1e-4)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("objective", ["dpo", "orpo", "simpo", "kto"])
def test_both_engines_learn_the_preference_with_the_same_figures(made, objective):
    fast, plain = (made(objective, engine=f'"{engine}"') for engine in ("fast", "plain"))
    same_figures(objective, fast, plain)
    apart = [[event.kl_to_base for event in of_kind(paths, EvaluationDone)] for paths in (fast, plain)]
    assert apart[0] == pytest.approx(apart[1], rel=1e-2, abs=1e-6)
    assert apart[0][0] == pytest.approx(0.0, abs=1e-6)  # the adapter is new
    assert apart[0][-1] > 1e-4
    steps, held_out = of_kind(fast, StepDone), of_kind(fast, EvaluationDone)
    assert steps[-1].loss < steps[0].loss
    assert held_out[-1].margin > held_out[0].margin
    assert all(report.verdict == "training" for report in of_kind(fast, GuardReported))
    noted = [warning.message for warning in of_kind(fast, Warned) if warning.code == "recipe"]
    assert [("preference.beta" in note) for note in noted] == ([True] if objective == "simpo" else [])


@pytest.mark.full
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("dpo", {"quantize": "nf4"}), ("kto", {"quantize": "nf4"}), ("dpo", {"method": "rslora"}),
        ("kto", {"method": "dora"}), ("kto", {"preference": {"loss_type": '"apo_zero_unpaired"'}}),
        ("dpo", {"pack": False}), ("kto", {"pack": False}),
    ],
    ids=str,
)  # fmt: skip
def test_both_engines_agree_with_other_weights_adapters_and_passes(made, objective, options):
    fast, plain = (made(objective, engine=f'"{engine}"', **dict(options)) for engine in ("fast", "plain"))
    same_figures(objective, fast, plain, rel=5e-3)


@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_training_begins_where_the_reference_is(made, objective):
    paths = made(objective)
    run_training(paths)
    first, before = of_kind(paths, StepDone)[0], of_kind(paths, EvaluationDone)[0]
    for event in (first, before):
        assert event.loss == pytest.approx(NEUTRAL[objective], rel=1e-4)
        assert event.margin == pytest.approx(0.0, abs=1e-4)


@pytest.mark.full
def test_the_reference_is_computed_once_for_the_same_weights_and_pairs(made, tmp_path):
    def computed(paths):
        run_training(paths)
        return any(event.phase == "preparing" and event.detail for event in of_kind(paths, PhaseChanged))

    assert computed(made())
    assert not computed(made(learning_rate=1e-3))
    assert computed(made(pairs=11))
    assert computed(made(first=20)), "as many pairs, but others"
    assert not computed(made())
    assert not computed(made("simpo"))
    for path in (user_cache_dir() / "references").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert computed(made())
    whole = [path for path in (user_cache_dir() / "references").iterdir() if zipfile.is_zipfile(path)]
    assert len(whole) == 1, "that of the last run"
    with np.load(whole[0]) as file:
        fewer = {name: file[name][:1] for name in file.files}
    np.savez(whole[0], **fewer)
    assert computed(made()), "numbers of other pairs"
    packed = {"quantize": "nf4", "precision": '"bf16"'}
    assert computed(made(**packed))
    assert computed(made(**packed, products='"fp8"')), "other products with the same weights"
    assert not computed(made(**packed))
    shutil.rmtree(tmp_path / "base")
    make_llama(tmp_path / "base", seed=1)
    assert computed(made()), "another model under the same name"


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_pairs_are_counted_while_their_log_probabilities_are_computed(made, engine, monkeypatch):
    monkeypatch.setattr(recorder, "PROGRESS_S", 0.0)
    paths = made(engine=f'"{engine}"', micro_batch_tokens=256, held_out=16)
    run_training(paths)
    phase, told = "", {}
    for event in read_events(paths.events):
        phase = event.phase if isinstance(event, PhaseChanged) else phase
        if isinstance(event, PhaseProgress) and event.unit == "pairs":
            told.setdefault(phase, []).append((event.done, event.total))
    data = of_kind(paths, DataReady)[0]
    everything = data.train_rows + data.validation_rows
    assert told["preparing"][-1] == (everything, everything), "training and held-out pairs"
    assert {total for _, total in told["evaluating"]} == {data.validation_rows}
    assert {done for done, _ in told["evaluating"]} > {data.validation_rows}, "more than once"
    assert all(one < other for one, other in pairwise(done for done, _ in told["preparing"]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("objective", "engine", "method", "dropout"),
    [
        ("dpo", "fast", "lora", 0.1), ("dpo", "fast", "dora", 0.0), ("dpo", "plain", "lora", 0.1),
        ("kto", "fast", "dora", 0.0), ("kto", "fast", "lora", 0.1), ("kto", "plain", "lora", 0.1),
    ],
)  # fmt: skip
def test_a_resumed_run_makes_the_same_steps(made, objective, engine, method, dropout):
    whole, halved = (made(objective, engine=f'"{engine}"', method=method, dropout=dropout) for _ in range(2))
    run_training(whole)

    def listen(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(halved, "stop_now")

    assert run_training(halved, listener=listen).exit_code == ExitCode.STOPPED
    for path in (user_cache_dir() / "references").iterdir():
        path.unlink()
    assert run_training(halved).exit_code == ExitCode.DONE
    assert losses(halved) == losses(whole)


@pytest.mark.full
def test_what_goes_astray_is_told_and_the_run_still_succeeds(made, tmp_path, monkeypatch):
    monkeypatch.setattr(preference_watch, "FALL", 0.05)  # a tiny model goes less far
    paths = made("dpo", max_steps=14, epochs=30.0, learning_rate=2e-2, preference={"beta": 0.02})
    recipe = read_recipe(paths)
    swapped = [pair(number) for number in range(50, 54)]
    swapped = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in swapped]
    held_out = {"validation_files": [str(write_jsonl(tmp_path / "swapped.jsonl", swapped))]}
    changed = recipe.model_copy(update={"data": recipe.data.model_copy(update=held_out)})
    paths = create_run(changed, tmp_path / "astray")
    assert run_training(paths).exit_code == ExitCode.DONE
    chosen = [event.chosen_log_prob for event in of_kind(paths, EvaluationDone)]
    assert chosen[-1] < 1.05 * chosen[0]
    verdict = read_card(paths).guard
    assert (verdict.verdict, verdict.check) == ("suspicious", "chosen_falls")
    assert "rpo_alpha" in verdict.remedy
