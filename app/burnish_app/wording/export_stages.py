"""The stages of an export and the status of each, from the export's job. Pure, no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from burnish_app.wording.numbers import duration_text
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.serve.protocol import ExportJob
from burnish_engine.contract.units import file_size, memory_size

StageStatus = Literal["done", "now", "waiting"]

_BASES = ("F16", "BF16")
_WRITE, _RUN, _WEIGH = "Writing the 16-bit file", "Running the trained model", "Weighing what the training rows use"
_PROVEN = ("gguf", "ollama", "lmstudio")
_PLAIN = ("F16", "BF16", "Q8_0")


@dataclass(frozen=True)
class JobStage:
    """One stage of an export.

    Attributes:
        text: text that says what the stage does.
        status: whether the stage is done, running now, or waiting.
    """

    text: str
    status: StageStatus


def job_stages(job: ExportJob, *, importance: bool) -> list[JobStage]:
    """Return the stages of a running export; none if they are unknown.

    Args:
        job: job of the export.
        importance: whether the export computes an importance matrix.
    """
    if job.to not in _PROVEN or not job.quants:
        return []
    names = [_WRITE, _RUN]
    if importance and any(quant not in _PLAIN for quant in job.quants):
        names.append(_WEIGH)
    names.append("Checking the 16-bit file")
    for quant in job.quants:
        if quant not in _BASES:
            names += [f"Making {quant}", f"Checking {quant}"]
    now = _stage_index(names, job.what)
    return [
        JobStage(name, "waiting" if now is None or at > now else "now" if at == now else "done")
        for at, name in enumerate(names)
    ]


def _stage_index(names: Sequence[str], what: str) -> int | None:
    """Return the index of the stage that a job is at; None before the first."""
    for base in _BASES:
        what = what.replace(f"Checking {base}", "Checking the 16-bit file")
    what = _WRITE if what.startswith("Writing") else what.partition(" against ")[0]
    if what == "Done":
        return len(names)
    return names.index(what) if what in names else None


def forecast_text(forecast: ExportForecast) -> str:
    """Return a sentence with the disk, memory and time that an export will take."""
    return (
        f"Takes {file_size(forecast.disk_bytes)} of disk ({file_size(forecast.disk_free_bytes)} free), "
        f"{memory_size(forecast.memory_bytes)} of memory ({memory_size(forecast.memory_free_bytes)} free) and "
        f"about {duration_text(max(forecast.seconds, 5.0))}."
    )


def forecast_problem(forecast: ExportForecast) -> str:
    """Return why an export cannot succeed; empty if it can."""
    if forecast.disk_bytes > forecast.disk_free_bytes:
        return "There is too little disk space: choose fewer types, or free some."
    if forecast.memory_bytes > forecast.memory_free_bytes:
        return "There is too little memory now: close other programs, or stop what is being trained."
    return ""
