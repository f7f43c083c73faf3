"""Requests about a run's exports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.exports import ExportKind
from burnish_engine.contract.recipe.recipe_export import GgufType, MergeOnto
from burnish_engine.contract.serve.protocol_line import ProtocolRequest

ProgramName = Literal["ollama", "lm_studio"]
"""Programs that run a finished file."""


class ForecastRequest(ProtocolRequest):
    """Forecast an export to GGUF: exact sizes, disk, memory and time by stage. Result: `forecast`."""

    method: Literal["forecast"] = "forecast"
    run: str
    quants: list[GgufType] = Field(default=[], description="Empty: the recipe's.")
    name: str = ""
    importance: bool | None = Field(default=None, description="null: as the recipe says.")


class ExportRequest(ProtocolRequest):
    """Start an export in a process of its own; it reports in the run's `export/job.json`. Result: `run`."""

    method: Literal["export"] = "export"
    run: str
    to: ExportKind = "gguf"
    quants: list[GgufType] = Field(default=[], description="Empty: the recipe's.")
    name: str = ""
    importance: bool | None = Field(default=None, description="null: as the recipe says; so are the two below.")
    merge_onto: MergeOnto | None = None
    size_limit_mb: float | None = Field(default=None, ge=0.0)


class CancelExportRequest(ProtocolRequest):
    """Ask a running export to stop. Result: `done`."""

    method: Literal["cancel_export"] = "cancel_export"
    run: str


class ProgramsRequest(ProtocolRequest):
    """Find the programs on this machine that a finished file can be given to. Result: `programs`."""

    method: Literal["programs"] = "programs"


class HandOverRequest(ProtocolRequest):
    """Give a finished file to a program on this machine. Result: `done`, `detail` is what it is called there."""

    method: Literal["hand_over"] = "hand_over"
    run: str
    file: str = Field(description="Name of a GGUF file in the run's export folder.")
    program: ProgramName


RequestsOnExports = ForecastRequest | ExportRequest | CancelExportRequest | ProgramsRequest | HandOverRequest
