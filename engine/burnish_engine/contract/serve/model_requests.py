"""Requests about the machine and models: facts, what fits, what to take, downloads, replies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.serve.protocol_line import ProtocolLine, ProtocolRequest


class DoctorRequest(ProtocolRequest):
    """Run the whole check-up, kernels included (some seconds). Progress: none. Result: `checkup`."""

    method: Literal["doctor"] = "doctor"
    bandwidth: bool = Field(default=False, description="Also measure copies between GPUs (some seconds more).")


class MachineRequest(ProtocolRequest):
    """Read the machine as it is now, quickly. Result: `machine`."""

    method: Literal["machine"] = "machine"


class HardwareRequest(ProtocolRequest):
    """Sample the machine once a second, as `hardware` messages, until it is canceled. It has no result."""

    method: Literal["hardware"] = "hardware"


class ModelRequest(ProtocolRequest):
    """Read the facts of a model. Result: `model`."""

    method: Literal["model"] = "model"
    path: str = Field(description='"embedded", a folder, or a name of the catalog that was fetched.')


class _ForRows(ProtocolRequest):
    target: TargetSection = TargetSection()
    recipe: str = Field(default="", description="TOML. Models are judged for its data, where that was inspected.")
    dataset: DatasetFacts | None = Field(
        default=None, description="The facts of that data, where the client has them, with any model's tokenizer."
    )


class ModelsRequest(_ForRows):
    """Rank the catalog for this machine and target. Result: `models`."""

    method: Literal["models"] = "models"
    query: str = Field(default="", description="Words that the title, family or purpose must hold.")


class LocalModelsRequest(_ForRows):
    """List the models on this machine, those that train best first; progress in models. Result: `local_models`."""

    method: Literal["local_models"] = "local_models"
    folders: list[str] = Field(default=[], max_length=100, description="Further folders of models.")


class SearchHubRequest(_ForRows):
    """Search the hub and judge what is found; progress in models. The network is used. Result: `hub_models`."""

    method: Literal["search_hub"] = "search_hub"
    query: str = Field(min_length=1, max_length=200)


class CheckFilesRequest(ProtocolRequest):
    """Compare a model's files with their published checksums, where known; progress in bytes. Result: `integrity`."""

    method: Literal["check_files"] = "check_files"
    path: str = Field(description="As for `model`.")


class AdapterRequest(ProtocolRequest):
    """Read the facts of an adapter that a run can continue from. Result: `adapter`."""

    method: Literal["adapter"] = "adapter"
    path: str = Field(description="The folder of a run that has ended, or of an adapter in PEFT's format.")


class DownloadsRequest(ProtocolRequest):
    """List the downloads, and start those that wait and can start. Result: `downloads`."""

    method: Literal["downloads"] = "downloads"


class DownloadRequest(ProtocolRequest):
    """Queue, pause or cancel the download of a model, by a process that outlives the server. Result: `downloads`."""

    method: Literal["download"] = "download"
    name: str = Field(description="The model's name on the hub.")
    do: Literal["start", "pause", "cancel"] = Field(
        default="start", description="start: also continue with a paused or failed one. cancel: delete what it has."
    )
    token: str = Field(default="", description="Access token for gated models. Never stored.")


class FetchRequest(ProtocolRequest):
    """Download a model by name; progress in bytes; can be canceled and resumes where it stopped. Result: `model`."""

    method: Literal["fetch"] = "fetch"
    name: str
    token: str = Field(default="", description="Access token for gated models. Never stored.")


class WhatFitsRequest(ProtocolRequest):
    """Find the largest models that train here, the longest rows and the largest passes; progress in models.

    Result: `what_fits`.
    """

    method: Literal["what_fits"] = "what_fits"
    model: str = Field(default="", description="Only this one. Empty: the usual sizes and the largest.")
    gpu_gib: float = Field(default=0.0, ge=0.0, le=4096.0, description="For a card of that memory. 0: as it is now.")


class SuggestRequest(ProtocolRequest):
    """Propose model and recipe with reasons. Result: `suggestion`."""

    method: Literal["suggest"] = "suggest"
    model: str = Field(default="", description="Empty: choose one.")
    data: list[str] = Field(default=[], description="Files to learn from.")
    validation: list[str] = Field(default=[], description="Held-out files.")
    target: TargetSection = TargetSection()
    recipe: str = Field(
        default="",
        description="TOML. How its `data` is read is kept: shape, columns and the like; so is its `preference`, unless "
        "that leaves open what to learn of preferences. Reasons count the rows that it holds out.",
    )
    machine: MachineFacts | None = Field(
        default=None, description="Another machine to train on, as its own server describes it; null: this one."
    )


class ChatOptions(ProtocolLine):
    """The options for choosing tokens."""

    max_tokens: int = Field(default=512, ge=1, le=32768)
    temperature: float = Field(default=0.0, ge=0.0, le=100.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = 0
    top_k: int = Field(default=0, ge=0, description="0: all tokens.")
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)


class ChatMessage(ProtocolLine):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


MOST_LANES = 3
"""Most models that may answer at once."""


class ChatRequest(ProtocolRequest):
    """Ask for a reply, streamed as `piece` messages. The first use loads the model, which is kept. Result: `reply`."""

    method: Literal["chat"] = "chat"
    target: str = Field(description='A run, a model folder, "embedded", or a .gguf file.')
    variant: Literal["tuned", "base", "start", "exported"] = Field(
        default="tuned", description="Of a run: which of its models; start: with the adapter that it continued from."
    )
    messages: list[ChatMessage] = Field(min_length=1)
    lane: int = Field(
        default=0,
        ge=0,
        lt=MOST_LANES,
        description="Requests of different lanes are answered at once where memory allows.",
    )
    options: ChatOptions = ChatOptions()


class FreeRequest(ProtocolRequest):
    """End the chat processes and free their memory. Result: `done`."""

    method: Literal["free"] = "free"


RequestsOnModels = (
    DoctorRequest
    | MachineRequest
    | HardwareRequest
    | ModelRequest
    | ModelsRequest
    | LocalModelsRequest
    | SearchHubRequest
    | CheckFilesRequest
    | AdapterRequest
    | DownloadsRequest
    | DownloadRequest
    | FetchRequest
    | WhatFitsRequest
    | SuggestRequest
    | ChatRequest
    | FreeRequest
)
