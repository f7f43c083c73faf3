"""A base model on disk: find it, check that it is whole and safe, and describe it. Loads no torch."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.files import is_file, read_plain
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import cached_model_name, is_address, is_model_name, models_dir
from burnish_engine.models.checkpoint import embedded
from burnish_engine.models.checkpoint.checkpoint_tensors import checkpoint_tensors
from burnish_engine.models.checkpoint.config_checks import (
    HEAD,
    check_config,
    check_tensors,
    embedding_rows,
    why_no_tokens,
)
from burnish_engine.models.checkpoint.gguf_file.folder import gguf_folder, gguf_of, is_gguf
from burnish_engine.models.checkpoint.meta_model import check_built
from burnish_engine.models.checkpoint.mtp_layers import check_mtp, mtp_count, mtp_names
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.wrapper import Wrapper, other_parts, text_part
from burnish_engine.models.families import family

TRAINED_WEIGHTS = "model.safetensors"
"""File of a model's weights where a run trained them all."""
_LANGUAGE_ONLY = "Beside {}, the language model alone is trained; a GGUF holds nothing else{}."
_KEPT = " but the layer for multi-token prediction (mtp), as it was"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True)
class ModelSource:
    """A checked model folder.

    Attributes:
        folder: folder with config.json, safetensors and tokenizer; of a GGUF, the one that was made from it, which has
            no weights.
        name: name of the model for people.
        config: parsed config.json; of a model with further parts the configuration of its language model.
        spec: decoder specification; None for families that only the plain path knows.
        note: sentence that a person should know about these weights, or an empty string.
        trained: whether a run trained all of its weights.
        chat_template: Jinja source that replaces the tokenizer's own template; empty: the tokenizer's own is used.
        wrapper: layout of the language model beside other parts; None where the folder holds nothing else.
        rows: number of rows of the embedding: token ids are smaller. 0 where it is not known.
    """

    folder: Path
    name: str
    config: dict[str, Any]
    spec: DecoderSpec | None
    note: str = ""
    trained: bool = False
    chat_template: str = ""
    wrapper: Wrapper | None = None
    rows: int = 0

    @property
    def has_drafts(self) -> bool:
        """Whether exports hold the files' layers for multi-token prediction, if there are any."""
        return self.spec is None or self.spec.mtp_layers > 0

    def without_drafts(self) -> ModelSource:
        """Return the model without its layers for multi-token prediction, which exports then leave out."""
        return replace(self, spec=self.spec.model_copy(update={"mtp_layers": 0})) if self.spec else self

    @property
    def trained_digest(self) -> str:
        """SHA-256 of the weights if a run trained them all, else empty. Reads the whole file."""
        if not self.trained:
            return ""
        with (self.folder / TRAINED_WEIGHTS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def place(self) -> Path:
        """The GGUF that the model was opened from, else its folder."""
        return gguf_of(self.folder) or self.folder

    @property
    def weight_files(self) -> list[Path]:
        """The files that hold the weights."""
        return sorted(self.folder.glob("*.safetensors")) if self.place == self.folder else [self.place]

    @property
    def stored_quantized(self) -> bool:
        """Whether the linear weights are stored quantized; the fast decoder only takes NF4 (see `why_not_fast`)."""
        return bool(self.config.get("quantization_config"))


def open_model(path: str) -> ModelSource:
    """Check a model folder, or unpack the embedded one.

    Args:
        path: "embedded", a folder, a .gguf file, or the name of a fetched model.

    Raises:
        UsageError: There is no such folder or file, no model can be trained from the file, or the path is an address.
        SetupError: The folder lacks config, weights or tokenizer, holds pickles only, or needs code of its own; a value
            of its config is impossible, a weight file is damaged, or config and weights are of different models.
    """
    if path == "embedded":
        folder = embedded.ensure()
        config = read_config(folder)
        return ModelSource(
            folder, embedded.NAME, config, decoder_spec(config), embedded.NOTE, rows=embedding_rows(config, {})
        )
    if is_address(path):
        raise UsageError(
            f"{path} is an address; a model is opened by its name or its folder.",
            'Download it with "burnish models fetch OWNER/NAME", and give OWNER/NAME.',
        )
    if is_gguf(path):
        return _open_gguf(Path(path))
    folder = model_folder(path)
    if is_model_name(path) and not folder.is_dir():
        close = difflib.get_close_matches(path, fetched_names(), n=3)
        hint = f"Did you mean {' or '.join(close)}, which is here? Else get it" if close else "Get it"
        raise UsageError(f"The model {path} is not on this machine.", f"{hint}: burnish models fetch {path}")
    if not folder.is_dir():
        kind = "is a file, not a folder" if folder.is_file() else "does not exist"
        raise UsageError(
            f"The model folder {folder} {kind}.",
            'Give a folder with config.json, safetensors and a tokenizer, a .gguf file, or "embedded".',
        )
    config, wrapper = text_part(read_config(folder))
    _check_weights(folder)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise SetupError(
            f"The model folder {folder} has no tokenizer ({', '.join(_TOKENIZER_FILES)}).",
            "Copy the tokenizer's files of the same model into it.",
        )
    check_config(folder, config, nested=wrapper is not None)
    _check_architecture(folder, config)
    stored = tensors = checkpoint_tensors(folder)
    parts = other_parts(stored, wrapper)
    if wrapper is not None:
        tensors = wrapper.language_model(tensors)
        if HEAD not in tensors:  # the keys that say so may stand in either config, or in none
            config["tie_word_embeddings"] = True
    spec = decoder_spec(config)
    if spec is None:
        check_built(folder, config, tensors)
    else:
        check_mtp(folder, stored)
        further = mtp_count(mtp_names(stored, spec.num_layers), spec.num_layers)
        spec = spec.model_copy(update={"mtp_layers": further})
        check_tensors(folder, config, spec, tensors)
    return ModelSource(
        folder,
        cached_model_name(folder.resolve()).rpartition("/")[2] or folder.resolve().name,
        config,
        spec,
        note=_LANGUAGE_ONLY.format(" and ".join(parts), _KEPT if _keeps_mtp(spec, parts) else "") if parts else "",
        wrapper=wrapper,
        rows=embedding_rows(config, tensors),
    )


def _open_gguf(path: Path) -> ModelSource:
    """Open the model of a GGUF, whose weights stay in the file."""
    folder = gguf_folder(path)
    config = read_config(folder)
    check_config(folder, config, nested=False)
    spec, tensors = decoder_spec(config), checkpoint_tensors(folder)
    check_tensors(folder, config, spec, tensors)
    types = sorted({tensor.dtype for tensor in tensors.values()} - {"F32"})
    note = f"The model is trained from the file {path.name} as it is (weights in {', '.join(types)})."
    return ModelSource(folder, path.stem, config, spec, note, rows=embedding_rows(config, tensors))


def _keeps_mtp(spec: DecoderSpec | None, parts: Sequence[str]) -> bool:
    """Whether a GGUF of the model holds layers for multi-token prediction."""
    known = family(spec.family) if spec is not None and "mtp" in parts else None
    return known is not None and known.gguf is not None and known.gguf.has_mtp


def open_trained(folder: Path, base: str) -> ModelSource:
    """Open a model whose weights were all trained by a run; it keeps the name of its base, which need not exist.

    Args:
        folder: folder that the run wrote the model to.
        base: base model that the run started from, as for `open_model`.

    Raises:
        SetupError: Something is missing in the folder.
    """
    name, note = (embedded.NAME, embedded.NOTE) if base == "embedded" else (Path(base).name, "")
    return replace(open_model(str(folder)), name=name, note=note, trained=True)


def fetched_names() -> list[str]:
    """Return the names of the models that were fetched to this machine."""
    folder = models_dir()
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return [name.replace("--", "/", 1) for name in found if "--" in name]


def read_config(folder: Path) -> dict[str, Any]:
    """Read a model folder's config.json.

    Raises:
        SetupError: There is none, or it is damaged.
    """
    path = folder / "config.json"
    if os.path.isdir(folder) and not os.access(folder, os.X_OK):  # noqa: PTH112  Path.is_dir raises errors of the system
        raise SetupError(f"The model folder {folder} cannot be read: permission denied.", "Check its permissions.")
    if not is_file(path):
        raise SetupError(
            f"The model folder {folder} has no config.json.",
            "Give the folder that holds it, or download the model again, with all its files.",
        )
    return _read_object(path)


def generation_ends(folder: Path) -> list[int]:
    """Return the tokens that generation_config.json names as ends of a reply; none where there is no such file.

    Args:
        folder: the model folder.

    Raises:
        SetupError: The file is damaged, or what it names is no token.
    """
    path = folder / "generation_config.json"
    value = _read_object(path).get("eos_token_id") if is_file(path) else None
    if why := why_no_tokens(value):
        raise SetupError(f"{path} has eos_token_id = {json.dumps(value):.60}, {why}.", "Download the file again.")
    return value if isinstance(value, list) else [] if value is None else [value]


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object."""
    try:
        value = json.loads(read_plain(path), object_hook=_special_float)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
        raise SetupError(f"{path} is not valid JSON: {error}.", "Download the file again.") from None
    except OSError as error:
        raise SetupError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the file's permissions and the disk."
        ) from None
    if not isinstance(value, dict):
        raise SetupError(f"{path} holds a {type(value).__name__}, not an object.", "Download the file again.")
    return value


def _special_float(value: dict[str, Any]) -> Any:
    """Turn the objects that transformers writes for infinite numbers, such as {"__float__": "Infinity"}, into these."""
    text = value.get("__float__") if len(value) == 1 else None
    return float(text) if text in ("Infinity", "-Infinity", "NaN") else value


def _indexed_files(index: Path) -> list[str]:
    """Return the names of the weight files that an index lists; all must be safetensors inside the folder."""
    weights = _read_object(index).get("weight_map")
    names = list(weights.values()) if isinstance(weights, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise SetupError(f"{index} has no usable weight_map (tensor name to file name).", "Download the file again.")
    wanted = sorted(set(names))
    for name in wanted:
        if _leaves_folder(name) or not name.endswith(".safetensors"):
            raise SetupError(
                f"{index} names the weight file {name!r}, which is not a safetensors file inside the model folder.",
                "Do not use this copy of the model; download it again from a source you trust.",
            )
    return wanted


def _leaves_folder(name: str) -> bool:
    """Return whether a relative path leaves the folder. Links may: Hugging Face's cache is made of them."""
    return any(path.anchor or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name)))


def _check_weights(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        wanted = _indexed_files(index)
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            raise SetupError(
                f"The model folder {folder} lacks {len(missing)} of {len(wanted)} weight files, first {missing[0]}.",
                "Download the missing files.",
            )
        return
    if any(folder.glob("*.safetensors")):
        return
    pickles = [file.name for pattern in _PICKLES for file in sorted(folder.glob(pattern))]
    if pickles:
        raise SetupError(
            f"The model folder {folder} has its weights only as pickles ({pickles[0]}), which can run code.",
            "Get the model's safetensors files; Burnish never opens pickles.",
        )
    raise SetupError(
        f"The model folder {folder} has no weights (*.safetensors).", "Download the model again, with all its files."
    )


def model_folder(path: str) -> Path:
    """Return the folder of a model, which may not exist.

    Args:
        path: model as for `open_model`.

    Raises:
        SetupError: The embedded model cannot be unpacked, or a GGUF is damaged.
        UsageError: There is no such GGUF, or no model can be trained from it.
    """
    if path == "embedded":
        return embedded.ensure()
    if is_gguf(path):
        return gguf_folder(Path(path))
    old = "/" not in path and not Path(path).exists() and model_dir(path).is_dir()  # a name of the hub without an owner
    return model_dir(path) if old or is_model_name(path) else Path(path)


def opens_without_torch(path: str) -> bool:
    """Return whether `open_model` loads no torch: the model is unpacked, and its family has a specification.

    Args:
        path: model as for `open_model`.
    """
    if path == "embedded":
        return embedded.is_unpacked()
    if is_gguf(path):
        return True
    folder = model_folder(path)
    try:
        config, wrapper = text_part(read_config(folder))
        check_config(folder, config, nested=wrapper is not None)
        return decoder_spec(config) is not None
    except SetupError:
        return True  # open_model will say the same, as early


def _check_architecture(folder: Path, config: dict[str, Any]) -> None:
    if decoder_spec(config) is not None:
        return  # transformers knows these; asking it would load torch
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    family = config.get("model_type")
    if isinstance(family, str) and family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return
    own_code = "auto_map" in config
    raise SetupError(
        f"The model in {folder} has the architecture {family!r}, which the installed transformers does not know as a "
        f"language model{', and its own Python code is not run' if own_code else ''}.",
        "Choose a model of a known architecture, or update Burnish.",
    )
