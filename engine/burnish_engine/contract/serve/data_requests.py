"""Requests about a recipe's data and what training on it would take."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.serve.protocol_line import ProtocolRequest


class InspectRequest(ProtocolRequest):
    """Inspect a dataset with the recipe's model and settings; progress in rows. Result: `dataset`."""

    method: Literal["inspect"] = "inspect"
    recipe: str = Field(description="TOML. `model` and `data` are used.")


class ColumnsRequest(ProtocolRequest):
    """List the columns of the first data file and every way to read them, whatever the recipe. Result: `columns`."""

    method: Literal["columns"] = "columns"
    recipe: str = Field(description="TOML. `data` is used.")


class PreviewRequest(ProtocolRequest):
    """Show one row as it would be trained on. Result: `preview`."""

    method: Literal["preview"] = "preview"
    recipe: str
    row: int = Field(default=1, ge=1, description="Number of a used training row, from 1.")
    tokens: bool = Field(default=False, description="One piece a token, as far as tokens are whole characters.")


class EstimateRequest(ProtocolRequest):
    """Predict memory, speed, time and disk against what is free now. Result: `plan`."""

    method: Literal["estimate"] = "estimate"
    recipe: str
    dataset: DatasetFacts | None = Field(
        default=None,
        description="What an earlier inspection with this recipe found; a server that began anew needs it.",
    )
