"""Collect the facts on a model folder that a person needs."""

from __future__ import annotations

import json
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import get_args

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, find_model
from burnish_engine.advise.facts.gguf_rules import gguf_refusal
from burnish_engine.advise.facts.gguf_size import predicted_file_bytes
from burnish_engine.advise.facts.shape import parameters
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.advice import ModelFacts
from burnish_engine.contract.files import read_plain, refuse_special
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.recipe.recipe_export import GgufType
from burnish_engine.hub.manifest import read_manifest
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.tokenizer_file import check_token_ids
from burnish_engine.models.transformers_path.model_shape import measured_spec

_LONGEST_HEADER = 100_000_000  # safetensors' own limit, bytes
_LICENSE = re.compile(r"^license:\s*['\"]?([\w.\-]+)", re.MULTILINE)
_FRONT_MATTER_BYTES = 20_000


def model_facts(path: str) -> ModelFacts:
    """Describe a model.

    Args:
        path: "embedded", a folder, or the name of a fetched model.

    Raises:
        UsageError: There is no such folder.
        SetupError: The folder holds no usable model.
    """
    source = open_model(path)
    check_token_ids(source)
    folder = source.folder
    chat = _has_template(folder)
    warnings = []
    if not chat:
        warnings.append("It has no chat template: it is a base model, and a plain template of Burnish's will be used.")
    if source.spec is None:
        warnings.append("Burnish does not know this family well: training may work, export to GGUF does not.")
    return ModelFacts(
        path=path,
        name=path if is_model_name(path) else source.name,
        folder=str(source.place),
        family=str(source.config.get("model_type", "")),
        parameters=parameters(source.spec) if source.spec and source.place != folder else count_parameters(folder),
        spec=source.spec or measured_spec(source.config),
        bytes=sum(file.stat().st_size for file in source.weight_files),
        max_context=source.spec.max_context if source.spec else None,
        chat=chat,
        license=_license(source, path),
        file_bytes=_file_bytes(source),
        note=source.note,
        warnings=warnings,
    )


def count_parameters(folder: Path) -> int | None:
    """Count the weights in a folder's safetensors files from their headers; None where one cannot be read."""
    total = 0
    for file in folder.glob("*.safetensors"):
        try:
            total += _count(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
            return None
    return total or None


def _count(file: Path) -> int:
    refuse_special(file)
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > _LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(stream.read(length))
    total = 0
    for name, entry in header.items():
        if name != "__metadata__":
            elements = 1
            for size in entry["shape"]:
                elements *= size
            total += elements
    return total


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    with suppress(OSError, ValueError):
        config = json.loads(read_plain(folder / "tokenizer_config.json"))
        return isinstance(config, dict) and bool(config.get("chat_template"))
    return False


def _license(source: ModelSource, path: str) -> str:
    manifest = read_manifest(source.folder)
    if manifest is not None and manifest.license:
        return manifest.license
    known = find_model(EMBEDDED if path == "embedded" else path, catalog())
    if known is not None:
        return known.license
    with suppress(OSError):
        refuse_special(source.folder / "README.md")
        with (source.folder / "README.md").open("rb") as file:
            start = file.read(_FRONT_MATTER_BYTES).decode("utf-8", "replace")
        if start.startswith("---") and (found := _LICENSE.search(start.partition("\n---")[0])):
            return found[1]
    return ""


def _file_bytes(source: ModelSource) -> dict[GgufType, int]:
    found: dict[GgufType, int] = {}
    spec = source.spec
    if spec is None or gguf_refusal(str(source.config.get("model_type")), spec, source.config):
        return found
    for quant in get_args(GgufType):
        with suppress(UsageError):
            if size := predicted_file_bytes(spec, quant):
                found[quant] = size
    return found
