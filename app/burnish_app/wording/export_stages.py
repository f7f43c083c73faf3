"""The stages of an export and the status of each, from the export's job. Pure, no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.look.language import say, tr
from burnish_app.state.step_status import StageStatus
from burnish_app.wording.numbers import duration_text
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.serve.export_requests import ProgramName
from burnish_engine.contract.serve.replies import ExportJob
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.contract.wording.tables import EXPORT_STAGES, Sentence, recognize

_BASES = ("F16", "BF16")
_Stage = tuple[str, str]
"""Id of a stage, and the type of the file that it makes or checks; empty: the 16-bit file."""
_CHECK_BASE: _Stage = ("check", "")
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
    stages: list[_Stage] = [("write", ""), ("run", "")]
    if importance and any(quant not in _PLAIN for quant in job.quants):
        stages.append(("weigh", ""))
    stages.append(_CHECK_BASE)
    for quant in job.quants:
        if quant not in _BASES:
            stages += [("make", quant), ("check", quant)]
    now = _stage_index(stages, job.what)
    return [
        JobStage(_stage_text(stage), "waiting" if now is None or at > now else "now" if at == now else "done")
        for at, stage in enumerate(stages)
    ]


def _stage_text(stage: _Stage) -> str:
    """Return a stage as the window shows it."""
    if stage == _CHECK_BASE:
        return tr("Checking the 16-bit file")
    return say(Sentence(EXPORT_STAGES[stage[0]], {"quant": stage[1]}))


def _stage_index(stages: Sequence[_Stage], what: str) -> int | None:
    """Return the index of the stage that a job is at; None before the first."""
    name, values = recognize(what, EXPORT_STAGES) or ("start", {})
    if name == "done":
        return len(stages)
    quant = values.get("quant", "")
    stage: _Stage = ("check" if name == "score" else name, "" if quant in _BASES else quant)
    return stages.index(stage) if stage in stages else None


def forecast_text(forecast: ExportForecast) -> str:
    """Return a sentence with the disk, memory and time that an export will take."""
    return tr(
        "Takes {disk_bytes} of disk ({disk_free_bytes} free), {memory_bytes} of memory "
        "({memory_free_bytes} free) and about {duration_text}."
    ).format(
        disk_bytes=file_size(forecast.disk_bytes),
        disk_free_bytes=file_size(forecast.disk_free_bytes),
        memory_bytes=memory_size(forecast.memory_bytes),
        memory_free_bytes=memory_size(forecast.memory_free_bytes),
        duration_text=duration_text(max(forecast.seconds, 5.0)),
    )


def forecast_problem(forecast: ExportForecast) -> str:
    """Return why an export cannot succeed; empty if it can."""
    if forecast.disk_bytes > forecast.disk_free_bytes:
        return tr("There is too little disk space: choose fewer types, or free some.")
    if forecast.memory_bytes > forecast.memory_free_bytes:
        return tr("There is too little memory now: close other programs, or stop what is being trained.")
    return ""


def stage_text(job: ExportJob) -> str:
    """Return what a running export is at, in a few words; empty if it has not said."""
    return next((stage.text for stage in job_stages(job, importance=True) if stage.status == "now"), "")


def handed_over_text(program: ProgramName, called: str) -> str:
    """Say that a program took a file, and how to use it there.

    Args:
        program: program that took it.
        called: what the file is called there.
    """
    if program == "ollama":
        return tr("Ollama knows it as {called}: ollama run {called}").format(called=called)
    return tr("LM Studio lists it among its models as {called}.").format(called=called)
