"""Export to folders: the merged model as safetensors, or the adapter alone."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from burnish_engine.chat.prompt import tokenizer_template
from burnish_engine.contract.errors import FidelityError, UsageError
from burnish_engine.contract.files import read_plain
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never, publish, require_space, staging_folder, stop_if
from burnish_engine.export.weights.adapter import check_adapter, target_whole_model
from burnish_engine.export.weights.merge import PLAIN_DTYPES, MergedWeights
from burnish_engine.models.checkpoint.safetensors_header import TYPE_BITS
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.wrapper import Wrapper
from burnish_engine.models.families import stores_gguf

SHARD_BYTES = 4_000_000_000
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*", "NOTICE*", "README.md")
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "README.md")


class BeyondRangeError(FidelityError):
    """A weight is larger than its number type can hold."""


Progress = Callable[[str, float], None]
"""Callback given the current activity and the share done, 0 to 1."""


def no_progress(_what: str, _share: float) -> None:
    """Ignore progress: a `Progress` for callers that show none."""


def export_safetensors(
    source: ModelSource,
    adapter: Path | None,
    out: Path,
    *,
    rounded: Collection[str] = frozenset(),
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = no_progress,
    canceled: Canceled = never,
    check: Callable[[Path], None] = lambda _folder: None,
) -> Path:
    """Write the merged model as a folder that transformers, vLLM and others load.

    Every tensor keeps its type in the base (usually bf16): the sum of base and update is rounded once. The chat
    template is the one that the model was trained with.

    Args:
        source: The base model.
        adapter: folder of the PEFT adapter; None writes the base again.
        out: folder to make; must not exist or be empty.
        rounded: names of base tensors that are rounded to NF4 and back before the adapter is added.
        shard_bytes: size of the largest weight file, bytes.
        progress: callback given the current activity and the share done.
        canceled: callback polled between tensors; True stops the work.
        check: called with the finished folder before it gets its name; may refuse it by an error.

    Returns:
        Path `out`.

    Raises:
        UsageError: `out` is not empty, or the base or adapter cannot be merged.
        NoSpaceError: The model does not fit the disk.
        FidelityError: A merged weight is not a finite number in the type it is written in.
        DataError: The model's chat template is invalid.
        StoppedError: Canceled.
    """
    must_be_free(out)
    weights = MergedWeights(source, adapter, rounded)
    sizes = {name: _nbytes(weights, name) for name in (*weights.names, *weights.others)}
    require_space(out.parent, sum(sizes.values()), "The merged model")
    shards = _shards(sizes, shard_bytes)
    done, total = 0, sum(sizes.values())
    with staging_folder(out.parent) as staging:
        folder = staging / "model"
        folder.mkdir()
        for file, names in shards.items():
            with (folder / file).open("wb") as stream:
                stream.write(_header(weights, names))
                for name in names:
                    for piece in _bytes_of(weights, name):
                        stop_if(canceled, "The export")
                        stream.write(piece)
                    done += sizes[name]
                    progress(EXPORT_STAGES["merge"], done / total)
        weights.check_all_used()
        if len(shards) > 1:
            _write_index(folder, weights, shards, total)
        _copy_small_files(source.folder, folder)
        if weights.unpacks_mxfp4 or stores_gguf(source.config):
            _change_config(folder, lambda config: config.pop("quantization_config"))
        if stores_gguf(source.config):
            _change_config(folder, _name_class)
        if weights.unties:
            _change_config(folder, partial(_set, key="tie_word_embeddings", value=False, adds=True))
        if not source.has_drafts:
            _change_config(folder, partial(_set, key="mtp_num_hidden_layers", value=0, adds=False))
        _write_template(source, folder)
        check(folder)
        if out.is_dir():
            out.rmdir()
        publish(folder, out)
    return out


def export_adapter(adapter: Path, out: Path, wrapper: Wrapper | None = None) -> Path:
    """Write the adapter alone, in PEFT format, after checking that it can be read.

    Args:
        adapter: folder of the PEFT adapter.
        out: folder to make; must not exist or be empty.
        wrapper: arrangement of a base that holds further parts beside the language model. Tensors and targets then
            get the names that they have inside the whole model. None: the base holds nothing else.

    Raises:
        UsageError: `out` is not empty.
        SetupError: The folder is no adapter.
        NoSpaceError: The adapter does not fit the disk.
    """
    must_be_free(out)
    check_adapter(adapter)
    files = [adapter / name for name in _ADAPTER_FILES if (adapter / name).is_file()]
    require_space(out.parent, sum(file.stat().st_size for file in files), "The adapter")
    with staging_folder(out.parent) as staging:
        folder = staging / "adapter"
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder / file.name)
        if wrapper is not None:
            target_whole_model(folder, wrapper)
        if out.is_dir():
            out.rmdir()
        publish(folder, out)
    return out


def to_dtype(name: str, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """Round an fp32 tensor to F32, F16 or BF16.

    Raises:
        BeyondRangeError: The result has an infinite or invalid number (fp16 ends at 65504).
    """
    if tensor.numel():
        # The extremes are enough (aminmax passes a NaN on), and are found much faster than isfinite of each.
        extremes = torch.stack(tensor.aminmax()).to(PLAIN_DTYPES[dtype])
        if not bool(torch.isfinite(extremes).all()):
            largest = float(tensor.abs().nan_to_num(nan=float("inf")).max())
            raise BeyondRangeError(
                f"The weight {name} reaches {largest:g}, which {dtype} cannot hold.",
                "Export as BF16, which reaches further." if dtype == "F16" and largest < 3e38 else "Train again.",
            )
    return tensor.to(PLAIN_DTYPES[dtype])


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's bytes, little-endian, row by row."""
    return memoryview(tensor.contiguous().view(torch.uint8).numpy().reshape(-1)) if tensor.numel() else memoryview(b"")


def _bytes_of(weights: MergedWeights, name: str) -> Iterator[memoryview]:
    """Yield a tensor's bytes: merged and rounded to the base's type, or unchanged for parts that are not trained."""
    if name in weights.others:
        pieces: Iterator[torch.Tensor] = iter((weights.load_other(name),))
    else:
        pieces = (to_dtype(name, piece, weights.base_dtype(name)) for piece in weights.pieces(name))
    for piece in pieces:
        yield raw_bytes(piece.reshape(1) if piece.dim() == 0 else piece)


def must_be_free(out: Path) -> None:
    """Refuse a folder that holds something already.

    Raises:
        UsageError: The folder is a file, or not empty.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out} exists already and is not empty.", "Choose another folder, or delete this one first.")


def _nbytes(weights: MergedWeights, name: str) -> int:
    return math.prod(weights.shape(name)) * TYPE_BITS[weights.base_dtype(name)] // 8


def _shards(sizes: dict[str, int], limit: int) -> dict[str, list[str]]:
    groups: list[list[str]] = [[]]
    room = limit
    for name, size in sizes.items():
        if size > room and groups[-1]:
            groups.append([])
            room = limit
        groups[-1].append(name)
        room -= size
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    return {f"model-{i:05d}-of-{len(groups):05d}.safetensors": names for i, names in enumerate(groups, 1)}


def _header(weights: MergedWeights, names: list[str]) -> bytes:
    """Build the header of the safetensors format: length as u64, then JSON padded to 8 bytes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name in names:
        end = start + _nbytes(weights, name)
        entries[weights.stored_name(name)] = {
            "dtype": weights.base_dtype(name),
            "shape": list(weights.shape(name)),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _write_index(folder: Path, weights: MergedWeights, shards: dict[str, list[str]], total: int) -> None:
    index = {
        "metadata": {"total_size": total},
        "weight_map": {weights.stored_name(name): file for file, names in shards.items() for name in names},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _copy_small_files(base: Path, folder: Path) -> None:
    for pattern in _COPIED:
        for file in base.glob(pattern):
            if (
                file.is_file()
                and not file.name.endswith(".safetensors.index.json")
                and not (folder / file.name).exists()
            ):
                shutil.copyfile(file, folder / file.name)


def _change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change config.json in place; a file that already says so stays as its maker wrote it."""
    path = folder / "config.json"
    text = read_plain(path)
    config = json.loads(text)
    change(config)
    if config != json.loads(text):
        path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _name_class(config: dict[str, Any]) -> None:
    """Add the name of transformers' class and the type of the weights, which no GGUF says."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]]
    config["dtype"] = "bfloat16"


def _set(config: dict[str, Any], *, key: str, value: object, adds: bool) -> None:
    """Set a key, also in the part that describes the language model; `adds` says whether where it does not stand."""
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and (adds or key in part):
            part[key] = value


def _write_template(source: ModelSource, folder: Path) -> None:
    """Write the training's chat template as chat_template.jinja where it differs from the base tokenizer's own."""
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    template = tokenizer_template(load_tokenizer(source))
    if not source.chat_template and not template.is_default:
        return
    (folder / "chat_template.jinja").write_text(template.source, encoding="utf-8")
    (folder / "chat_template.json").unlink(missing_ok=True)
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        values = json.loads(read_plain(settings))
        if values.pop("chat_template", None) is not None:  # older programs look here first
            settings.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
