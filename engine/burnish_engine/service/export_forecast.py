"""Predict an export of a run, in a process that may load torch: sizes depend on the tokenizer."""

from __future__ import annotations

import shutil
from contextlib import suppress

import psutil

from burnish_engine.advise.predict.on_target import largest_file_bytes
from burnish_engine.chat.run_model import trained_model
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.export_requests import ForecastRequest
from burnish_engine.export.preflight import forecast_gguf
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import open_run, read_recipe, with_own_template
from burnish_engine.scoring.rows_file import scored_tokens


def export_forecast(request: ForecastRequest) -> ExportForecast:
    """Predict an export.

    Raises:
        UsageError: There is no such run, it has trained nothing, or its model cannot be exported.
        SetupError: A model file is missing or damaged.
        FidelityError: llama.cpp cannot split text as the model does.
    """
    paths = open_run(request.run)
    recipe = with_own_template(paths, read_recipe(paths))
    source, adapter = trained_model(paths, recipe)
    weighed = recipe.export.importance if request.importance is None else request.importance
    found = forecast_gguf(
        source,
        adapter,
        request.name or recipe.name or f"{source.name}-tuned",
        request.quants or recipe.export.quants,
        importance_tokens=recipe.export.importance_tokens if weighed else 0,
        scored_tokens=scored_tokens(paths),
        gain=_gain(paths),
    )
    return ExportForecast(
        sizes=found.sizes,
        stages=found.stages,
        disk_bytes=found.disk_bytes,
        disk_free_bytes=shutil.disk_usage(paths.root).free,
        memory_bytes=found.memory_bytes,
        memory_free_bytes=psutil.virtual_memory().available,
        seconds=found.seconds,
        types=found.types,
        target_bytes=largest_file_bytes(source.spec, recipe.target) if source.spec is not None else 0,
    )


def _gain(paths: RunPaths) -> float:
    """Return by how much training lowered the held-out loss, nats; 0 where that was not measured."""
    with suppress(OSError, UsageError):
        run = read_run(paths.events)
        steps, losses = run.evaluations.step.values(), run.evaluations.loss.values()
        if run.result is not None and len(steps) and steps[0] == 0:
            return float(losses[0]) - run.result[1]
    return 0.0
