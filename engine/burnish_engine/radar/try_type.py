"""Take a small model of one type all the way: plan, training, export, proof in llama.cpp."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, FidelityError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.radar.verdict import Verdict

_RECIPE = """
[model]
path = '{model}'
[data]
files = ['{data}']
validation_files = ['{data}']
max_length = 128
[adapter]
rank = 4
[devices]
kind = "cpu"
threads = 1
[train]
max_steps = 2
micro_batch_tokens = 256
learning_rate = 1e-2
precision = "fp32"
[evaluation]
general_text = false
[export]
quants = ["F16"]
importance = false
"""
"""F16 alone: rounding of the smaller types says nothing about a family."""


def try_type(model_type: str, folder: Path) -> None:
    """Try one type and write what holds of it to `verdict.json`, anew after each stage, so that a crash leaves some.

    Args:
        model_type: name of the type.
        folder: empty folder for model, run and files.
    """
    verdict = Verdict(model_type)
    for stage in (_build, _plan, _train, _export):
        verdict = stage(verdict, folder)
        write_atomic(folder / "verdict.json", json.dumps(asdict(verdict)))
        if verdict.why:
            return


def _build(verdict: Verdict, folder: Path) -> Verdict:
    from burnish_engine.radar.small_model import TEXTS, save_small

    rows = [json.dumps({"text": text}) for text in TEXTS for _ in range(4)]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    try:
        save_small(verdict.model_type, folder / "model")
    except Exception as error:  # noqa: BLE001  transformers fails with errors of any kind
        return replace(verdict, why=f"not built: {_in_a_word(error)}")
    return verdict


def _plan(verdict: Verdict, folder: Path) -> Verdict:
    from burnish_engine.advise.plan.plan_recipe import plan_recipe

    try:
        plan = plan_recipe(_recipe(folder))
    except Exception as error:  # noqa: BLE001  a bug of Burnish's is a finding too
        return replace(verdict, plans="no", why=f"not planned: {_in_a_word(error)}")
    exports = {choice.kind for choice in plan.exports if choice.works}
    return replace(verdict, plans="fast" if plan.memory_plan else "plain", exports="yes" if "gguf" in exports else "no")


def _train(verdict: Verdict, folder: Path) -> Verdict:
    from burnish_engine.runs.card import read_card
    from burnish_engine.runs.store import create_run
    from burnish_engine.train.run import run_training

    paths = create_run(_recipe(folder), folder / "run")
    try:
        outcome = run_training(paths, force=True, anyway=True)
    except Exception as error:  # noqa: BLE001  a bug of Burnish's is a finding too
        return replace(verdict, trains="no", why=f"not trained: {_in_a_word(error)}")
    card = read_card(paths)
    if outcome.exit_code or card is None:
        return replace(verdict, trains="no", why=f"not trained: {outcome.exit_code.name.lower()}")
    return replace(verdict, trains=card.circumstances.layout)


def _export(verdict: Verdict, folder: Path) -> Verdict:
    from burnish_engine.export.job import export_gguf
    from burnish_engine.export.run_rows import export_rows, reference_options
    from burnish_engine.export.verify.reference import ExportedModel
    from burnish_engine.models.checkpoint.source import open_model

    if verdict.exports != "yes":
        return verdict
    paths, recipe = RunPaths(folder / "run"), _recipe(folder)
    source = open_model(recipe.model.path)
    rows = export_rows(paths, recipe, source)
    options = reference_options(paths, recipe, source, rows)
    model = ExportedModel(source, paths.adapter, rows.held_out, rows.chats, options, threads=1)
    try:
        export_gguf(model, folder / "gguf", "small", recipe.export.quants)
    except FidelityError:
        return replace(verdict, runs="differs")
    except Exception as error:  # noqa: BLE001  a bug of Burnish's is a finding too
        return replace(verdict, exports="no", why=f"not exported: {_in_a_word(error)}")
    return replace(verdict, runs="equal")


def _recipe(folder: Path) -> Recipe:
    return parse_recipe(_RECIPE.format(model=folder / "model", data=folder / "rows.jsonl"))


def _in_a_word(error: Exception) -> str:
    return "refused" if isinstance(error, BurnishError) else type(error).__name__
