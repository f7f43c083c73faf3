"""Runs with nothing wrong with them: the guard finds nothing, says so, and leaves no trace in what is trained."""

import pytest

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import GuardReported, RolledBack
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import losses, tiny_recipe

MAGMA = '[masking]\nkind = "magma"\n'
WATCHED = "[evaluation]\nevery = 4\n"
HEALTHY = {
    "fast": ({"engine": '"fast"', "max_steps": 14}, {}, ""),
    "fast, another seed, accumulated": ({"engine": '"fast"', "seed": 7, "accumulation": 2}, {}, WATCHED),
    "fast, bf16": ({"engine": '"fast"', "precision": '"bf16"', "seed": 1}, {}, ""),
    "fast, fp16 with its loss scale": ({"engine": '"fast"', "precision": '"fp16"', "seed": 2}, {}, ""),
    "fast, rows apart": ({"engine": '"fast"', "pack": False, "seed": 3}, {}, WATCHED),
    "fast, magma": ({"engine": '"fast"', "seed": 4}, {}, MAGMA),
    "fast, few targets, rsLoRA": ({"engine": '"fast"'}, {"method": "rslora", "targets": ["q_proj", "v_proj"]}, ""),
    "fast, 4 bits": ({"engine": '"fast"', "seed": 5}, {}, '[model]\nquantize = "nf4"\n'),
    "fast, decay to nothing": ({"engine": '"fast"', "schedule": '"wsd"', "final_share": 0.0}, {}, ""),
    "plain": ({"engine": '"plain"', "seed": 8, "max_steps": 14}, {}, WATCHED),
    "plain, bf16, recomputing": ({"engine": '"plain"', "precision": '"bf16"', "recompute": True}, {}, ""),
    "fast, DoRA": ({"engine": '"fast"', "seed": 10, "weight_decay": 0.1}, {"method": "dora", "dropout": 0.0}, ""),
    "plain, DoRA": ({"engine": '"plain"', "seed": 9, "weight_decay": 0.1}, {"method": "dora"}, ""),
    "plain, every weight": ({"engine": '"plain"', "learning_rate": 5e-4}, {"method": "full"}, ""),
    "plain, every weight in bf16": (
        {"engine": '"plain"', "learning_rate": 5e-4, "precision": '"bf16"'}, {"method": "full"}, "",
    ),
    "plain, every weight, magma": ({"engine": '"plain"', "learning_rate": 5e-4}, {"method": "full"}, MAGMA),
    "one step": ({"max_steps": 1}, {}, ""),
    "two steps, warming up slowly": ({"max_steps": 2, "warmup_share": 0.9, "learning_rate": 1e-5}, {}, ""),
    "a small learning rate in bf16": ({"learning_rate": 2e-6, "precision": '"bf16"', "max_steps": 6}, {}, ""),
    "one row again and again": ({"rows": 1, "epochs": 40.0, "max_steps": 20}, {}, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("healthy")


def recipe_of(folder, name, **changes):
    settings, adapter, extra = HEALTHY[name]
    quantized = "quantize" in extra
    recipe = tiny_recipe(folder, extra="" if quantized else extra, **{"max_steps": 8, "epochs": 9.0, **settings})
    model = recipe.model.model_copy(update={"quantize": "nf4" if quantized else "none"})
    return recipe.model_copy(
        update={"adapter": recipe.adapter.model_copy(update=adapter), "model": model, **changes}
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found(folder, name):
    paths = create_run(recipe_of(folder, name), folder / f"run {name}")
    outcome = run_training(paths)
    assert outcome.exit_code == 0, outcome.message
    events = list(read_events(paths.events))
    reports = [event for event in events if isinstance(event, GuardReported)]
    # A learning rate that moves less than bf16 shows is worth a word, and no more.
    allowed = {"", "same_output"} if "small" in name else {""}
    assert {event.check for event in reports} <= allowed, [event.sentence for event in reports]
    assert next(event.when for event in reports if event.when != "training") == "before"
    assert not any(isinstance(event, RolledBack) for event in events)
    assert read_card(paths).guard.sentence == read_state(paths).verdict == reports[-1].sentence
    assert read_state(paths).suspicious == (reports[-1].verdict != "training")
    if "small" not in name:
        assert reports[-1].sentence.startswith("It trained: ")


@pytest.mark.full
@pytest.mark.parametrize("name", ["fast, fp16 with its loss scale", "plain, DoRA"])
def test_looking_changes_nothing(folder, name):
    """The same bits with the guard, without its measurements, and without it."""
    found = []
    for number, section in enumerate(("", "probes = false", 'action = "off"')):
        guard = parse_recipe(f"[guard]\n{section}").guard
        paths = create_run(recipe_of(folder, name, guard=guard), folder / f"look {name} {number}")
        assert run_training(paths).exit_code == 0
        found.append((losses(paths), (paths.adapter / "adapter_model.safetensors").read_bytes()))
    assert found[0] == found[1] == found[2]
