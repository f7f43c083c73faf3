"""Requests about a recipe's data and what training on it would take."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.data_report import RowPlace
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.serve.protocol_line import ProtocolRequest


class InspectRequest(ProtocolRequest):
    """Inspect a dataset with the recipe's model and settings; progress in rows. Result: `dataset`."""

    method: Literal["inspect"] = "inspect"
    recipe: str = Field(description="TOML. `model` and `data` are used.")


class ColumnsRequest(ProtocolRequest):
    """List the columns of a data file and every way to read them, whatever the recipe. Result: `columns`."""

    method: Literal["columns"] = "columns"
    recipe: str = Field(description="TOML. `data` is used.")
    file: str = Field(default="", description="Name of a file of the data, as its facts name it; empty: the first.")


class RowsRequest(ProtocolRequest):
    """Read a stretch of a data file's rows as they are in it, or rows of any file. Result: `rows`."""

    method: Literal["rows"] = "rows"
    recipe: str = Field(description="TOML. `data` is used.")
    file: str = Field(default="", description="Name of a file of the data, as its facts name it; empty: the first.")
    start: int = Field(default=0, ge=0, description="Rows of the file before the first one wanted.")
    count: int = Field(default=50, ge=1, le=500)
    places: list[RowPlace] = Field(default=[], max_length=500, description="Rows to read in place of the stretch.")


class PreviewRequest(ProtocolRequest):
    """Show one row of a data file as it would be trained on, whether the recipe uses it or not. Result: `preview`."""

    method: Literal["preview"] = "preview"
    recipe: str = Field(description="TOML. `model`, `data` and `preference` are used.")
    file: str = Field(default="", description="Name of a file of the data, as its facts name it; empty: the first.")
    index: int = Field(default=0, ge=0, description="Rows of the file before it.")


class TryRewardsRequest(ProtocolRequest):
    """Let the recipe's model reply to the first rows of a run, and judge the replies by its rewards. Result: `trial`.

    The model is loaded for it, and freed afterwards.
    """

    method: Literal["try_rewards"] = "try_rewards"
    recipe: str = Field(description='TOML, with preference.objective = "grpo".')
    rows: int = Field(default=10, ge=1, le=100)


class OffersRequest(ProtocolRequest):
    """Ask the place that a recipe names for its machines, and plan the run on each. Nothing is sent. Result: `offers`.

    The network, ssh, or the programs of a cluster or a cloud are used.
    """

    method: Literal["offers"] = "offers"
    recipe: str = Field(description="TOML, whose `devices.where` is another machine.")
    dataset: DatasetFacts | None = Field(
        default=None, description="What an earlier inspection with this recipe found, where the server may not know."
    )


class EstimateRequest(ProtocolRequest):
    """Predict memory, speed, time and disk against what is free now. Result: `plan`.

    Of estimates that wait, only the newest is made; the others end with `canceled`.
    """

    method: Literal["estimate"] = "estimate"
    recipe: str
    dataset: DatasetFacts | None = Field(
        default=None,
        description="What an earlier inspection with this recipe found; a server that began anew needs it.",
    )
    machine: MachineFacts | None = Field(
        default=None, description="Another machine to plan for, as its own server describes it; null: this one."
    )


RequestsOnData = (
    InspectRequest | ColumnsRequest | RowsRequest | PreviewRequest | EstimateRequest | OffersRequest | TryRewardsRequest
)
