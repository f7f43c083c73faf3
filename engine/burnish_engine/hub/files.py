"""Models a hub's answer about a model, and selects the files that training needs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import safe_name

INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files that transformers reads for a text model, besides the weights. Nothing that can hold code is among them."""
_TERMS = re.compile(r"(LICENSE|LICENCE|NOTICE|USE_POLICY|README)(\.(md|txt))?", flags=re.IGNORECASE)
_WEIGHTS = re.compile(r"[A-Za-z0-9][\w.\-]{0,200}\.safetensors", flags=re.ASCII)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MAX_TERMS_BYTES = 2_000_000


_Count = Annotated[int, Field(ge=0, le=10**15)]  # of bytes, weights or downloads


class _HubModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class LargeFile(_HubModel):
    """The checksum and size of a file in large-file storage."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: _Count


class HubFile(_HubModel):
    """One file of a model on the hub."""

    name: str = Field(alias="rfilename", min_length=1)
    size: _Count | None = None
    git_sha1: str | None = Field(default=None, alias="blobId", pattern=r"^[0-9a-f]{40}$")
    lfs: LargeFile | None = None

    @property
    def bytes(self) -> int:
        """Size of the file, bytes."""
        return self.lfs.size if self.lfs else self.size or 0

    @property
    def identity(self) -> str:
        """Published checksum: SHA-256 of a file in large-file storage, else git's SHA-1 of the blob."""
        return self.lfs.sha256 if self.lfs else self.git_sha1 or ""


class ModelAnswer(_HubModel):
    """The hub's answer about one model (`api/models/NAME/revision/REVISION?blobs=true`)."""

    id: str
    sha: str = Field(pattern=r"^[0-9a-f]{40}$")
    gated: bool | str = False  # false, "auto" or "manual"
    disabled: bool = False
    tags: list[str] = []
    card: dict[str, Any] | None = Field(default=None, alias="cardData")
    siblings: list[HubFile] = []

    @property
    def license(self) -> str:
        """License that the model's page names; empty where it names none."""
        return _license(self.tags, self.card or {})


_WIDTH_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2}
"""Bytes of a value in each number format of safetensors; those that are not named take one."""


class _Counts(_HubModel):
    """Number of weights in each number format."""

    parameters: dict[str, _Count] = {}


class FoundAnswer(_HubModel):
    """The hub's answer about one model of a search (`api/models?search=...&expand=...`)."""

    id: str
    sha: str = Field(pattern=r"^[0-9a-f]{40}$")
    gated: bool | str = False
    downloads: _Count = 0
    tags: list[str] = []
    card: dict[str, Any] | None = Field(default=None, alias="cardData")
    task: str | None = Field(default=None, alias="pipeline_tag")
    safetensors: _Counts | None = None

    @property
    def license(self) -> str:
        """License that the model's page names; empty where it names none."""
        return _license(self.tags, self.card or {})

    @property
    def parameters(self) -> int:
        """Number of weights; 0 where the hub does not say."""
        return sum(self.safetensors.parameters.values()) if self.safetensors else 0

    @property
    def weight_bytes(self) -> int:
        """Size of the weights, bytes; 0 where the hub does not say."""
        counts = self.safetensors.parameters if self.safetensors else {}
        return sum(count * _WIDTH_BYTES.get(kind, 1) for kind, count in counts.items())

    def tags_of(self, wanted: Collection[str]) -> set[str]:
        """Return which of some tags the model has."""
        return {tag.casefold() for tag in self.tags} & set(wanted)


def _license(tags: Sequence[str], card: dict[str, Any]) -> str:
    tagged = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    name = card.get("license") or tagged
    if name == "other":
        name = card.get("license_name") or name
    return name if isinstance(name, str) else ", ".join(map(str, name)) if isinstance(name, list) else ""


@dataclass(frozen=True)
class ModelListing:
    """The files that a download will fetch, and the model's license.

    Attributes:
        name: requested name of the model.
        revision: requested branch, tag or commit.
        commit: commit that the revision names now; all files are of this commit.
        license: license that the model's page or the catalog names; empty where neither does.
        license_note: conditions that a person should know, where the catalog has them.
        gated: whether the model's page asks to accept terms.
        files: files to download.
        downloaded_bytes: bytes of the files that an earlier attempt has downloaded.
    """

    name: str
    revision: str
    commit: str
    license: str
    license_note: str
    gated: bool
    files: tuple[HubFile, ...]
    downloaded_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Size of all files, bytes."""
        return sum(file.bytes for file in self.files)


def settings_files(answer: ModelAnswer) -> list[HubFile]:
    """Select the config, tokenizer, chat template and license texts.

    Raises:
        SetupError: The model has no config.json, or the hub gives no size and checksum of a file.
    """
    wanted = [
        file
        for file in answer.siblings
        if file.name in _SETTINGS or (_TERMS.fullmatch(file.name) and file.bytes <= _MAX_TERMS_BYTES)
    ]
    names = {file.name for file in wanted}
    if "config.json" not in names:
        kind = _other_kind({file.name for file in answer.siblings})
        raise SetupError(
            f"{answer.id} has no config.json{kind}.",
            "Choose a whole model with config.json, safetensors and tokenizer.",
        )
    return _with_checksums(answer, wanted)


def needs_index(answer: ModelAnswer) -> bool:
    """Whether the weights are in several files that an index lists; transformers looks for the single file first."""
    names = {file.name for file in answer.siblings}
    return _WHOLE not in names and INDEX in names


def index_file(answer: ModelAnswer) -> HubFile:
    """Return the file with the index of the weights."""
    return _with_checksums(answer, [file for file in answer.siblings if file.name == INDEX])[0]


def weight_files(answer: ModelAnswer, index: Path | None) -> list[HubFile]:
    """Select the safetensors files that hold the model's weights.

    Args:
        answer: the hub's answer about the model.
        index: path of the downloaded index, for weights in several files.

    Raises:
        SetupError: The model has no safetensors, or the index names a missing file or one outside the folder.
    """
    files = {file.name: file for file in answer.siblings}
    if index is not None:
        names = _indexed(answer.id, index)
        missing = [name for name in names if name not in files]
        if missing:
            raise SetupError(
                f"{answer.id} lacks {len(missing)} of the {len(names)} weight files that its index lists, "
                f"first {missing[0]!r}.",
                "Choose another revision or another copy of the model.",
            )
        return _with_checksums(answer, [files[name] for name in names])
    if _WHOLE in files:
        return _with_checksums(answer, [files[_WHOLE]])
    raise SetupError(
        f"{answer.id} has no {_WHOLE} and no {INDEX}{_other_kind(set(files))}.",
        "Choose a copy of the model with safetensors; Burnish never opens pickles, which can run code.",
    )


def _indexed(model: str, index: Path) -> list[str]:
    try:
        weights = json.loads(read_plain(index))["weight_map"]
        names = sorted(set(weights.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        names = []
    if not names:
        raise SetupError(f"The weight index of {model} cannot be read.", "Choose another copy of the model.")
    for name in names:
        if not isinstance(name, str) or not _WEIGHTS.fullmatch(name) or safe_name(name) != name:
            raise SetupError(
                f"The weight index of {model} names the file {name!r}, which is no safetensors file beside it.",
                "Do not use this copy of the model; choose one from a source you trust.",
            )
    return names


def _with_checksums(answer: ModelAnswer, files: list[HubFile]) -> list[HubFile]:
    for file in files:
        if not file.identity or (file.size is None and file.lfs is None):
            raise SetupError(
                f"The hub tells no size and checksum of {file.name} of {answer.id}, so it could not be checked.",
                "If HF_ENDPOINT names a mirror, use one that passes on the files' metadata.",
            )
    return files


def _other_kind(names: set[str]) -> str:
    """Describe what a repository without the wanted files seems to hold, as the end of a sentence."""
    if "adapter_config.json" in names:
        return "; it is an adapter for another model"
    if any(name.endswith(".gguf") for name in names):
        return "; it holds GGUF files, which can be run but not trained"
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    return f"; its weights are pickles ({pickles[0]})" if pickles else ""
