"""Types for a device's capacity: the longest rows, largest passes and models that fit. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.record import Facts

Limit = Literal["memory", "system memory", "context", "search"]
Method = Literal["lora", "qlora"]

LIMIT_TEXT: dict[Limit, str] = {
    "memory": "memory",
    "system memory": "system memory",
    "context": "the model's context",
    "search": "nothing so far",
}
"""Text that follows "limited by", by limit."""
METHOD_TEXT: dict[Method, str] = {"lora": "LoRA", "qlora": "QLoRA"}


class LargestPass(Facts):
    """The largest pass of a kind that fits, and its predicted speed and memory."""

    tokens: int = Field(description="Tokens of the pass.")
    rows: int = Field(description="Rows in it.")
    tokens_per_s: float
    memory_bytes: int = Field(description="Peak on the card.")
    host_bytes: int = Field(description="System memory beside it; 0 on a processor.")
    limited_by: Limit = Field(description='What limits it. "search": larger passes were not tried.')


class ModelCapacity(Facts):
    """The capacity for one model and one way of training it."""

    name: str = Field(description="Name of the model in a recipe.")
    title: str
    parameters: int
    method: Method = Field(description="lora: frozen weights in 16 bits (32 on old cards); qlora: in 4 bits.")
    max_context: int = Field(description="Longest row the model was made for, tokens.")
    largest: bool = Field(default=False, description="No clearly larger model of the catalog trains here in this way.")
    longest: LargestPass | None = Field(default=None, description="The longest row, alone in its pass.")
    biggest: LargestPass | None = Field(default=None, description="The biggest pass of rows of `row_tokens`.")
    problem: str = Field(default="", description="Why not even a short row is trained; empty where one is.")


class DeviceCapacity(Facts):
    """The predicted capacity of a device: the models, rows and passes that can be trained on it."""

    device: str = Field(description="Name of the GPU, or CPU.")
    memory_free_bytes: int = Field(description="Free memory, into which everything has to fit.")
    memory_total_bytes: int
    host_free_bytes: int = Field(description="System memory that is free; beside a GPU a part of a run may stay there.")
    precision: str = Field(description="Precision of the computation: bf16, fp16 or fp32.")
    rank: int = Field(description="Rank of the adapters.")
    row_tokens: int = Field(description="Length of the rows in the biggest passes.")
    models: list[ModelCapacity] = Field(description="Smallest model first, in 16 bits before 4.")
    speed_source: str = Field(default="", description="Where the speeds come from.")
    notes: list[str] = Field(default=[])
