"""Reads what a saved adapter changes from its two files, for everything that uses one. Loads no torch.

Names in the files are those of `peft.get_peft_model_state_dict`. PEFT writes low-rank matrices of linear layers and
embeddings, whole tensors (`modules_to_save`, `bias`), rows of tokens (`trainable_token_indices`, which take the place
of the embedding's), biases of B (`lora_bias`), and frozen copies of embedding and head where these have an adapter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.coverage import BeyondLayers
from burnish_engine.contract.files import is_file
from burnish_engine.models.checkpoint.safetensors_header import PLAIN_TYPES, StoredTensor, stored_tensors
from burnish_engine.models.families.experts import EXPERT_MATRICES
from burnish_engine.models.families.matrices import USUAL_MATRICES
from burnish_engine.models.saved_adapters.saved_adapter import (
    PREFIX,
    WEIGHTS_FILE,
    read_config,
    refuse_missing,
    refuse_not_finite,
    refuse_strange,
)

_PART = re.compile(
    r"^(?P<module>.+?)\.(?:"
    r"lora_embedding_(?P<table>[AB])|lora_(?P<matrix>[AB])\.weight|lora_B\.(?P<bias>bias)|"
    r"(?P<magnitude>lora_magnitude_vector)(?:\.weight)?|token_adapter\.(?P<rows>trainable_tokens_delta)|"
    r"base_layer\.(?P<frozen>weight))$"
)
_OTHER_KINDS = {
    "fan_in_fan_out": "adapts transposed weights (fan_in_fan_out)",
    "use_qalora": "is a QA-LoRA adapter",
    "use_bdlora": "is a block-diagonal adapter",
    "alora_invocation_tokens": "is only active after some tokens (aLoRA)",
    "arrow_config": "chooses between several adapters (Arrow)",
    "velora_config": "compresses its activations (VeLoRA)",
    "monteclora_config": "draws its weights at random (MonteCLoRA)",
    "kasa_config": "scales its base's weights (KaSA)",
    "layer_replication": "repeats layers of its base",
}
"""Keys of adapter_config.json that make more of it than LoRA on single weights, and what to say of each."""
_BEYOND_LORA = {
    "modules_to_save": "holds whole modules beside its low-rank matrices",
    "trainable_token_indices": "holds rows of tokens beside its low-rank matrices",
    "lora_bias": "holds biases",
}
"""Keys that add trained tensors to low-rank matrices, and what to say of each."""
_BASE_CHANGING_STARTS = ("pissa", "corda", "olora", "loftq", "lora_ga")
"""Values of init_lora_weights with which PEFT changes the base's own weights, also where it loads such an adapter."""


_EXPONENTS = {
    "F64": ("<u8", np.uint64(0x7FF0_0000_0000_0000)),
    "F32": ("<u4", np.uint32(0x7F80_0000)),
    "F16": ("<u2", np.uint16(0x7C00)),
    "BF16": ("<u2", np.uint16(0x7F80)),
}
"""Plain types: numpy's type of as many bits, and the bits of a number's exponent."""
_READ_BYTES = 2**24


@dataclass(frozen=True)
class AdapterPart:
    """One tensor of an adapter's file.

    Attributes:
        module: path of the module in the model; of a whole tensor the path of the tensor.
        kind: A, B or M (DoRA's magnitudes) of a linear layer, EA or EB of an embedding, bias (of B), rows (of tokens),
            frozen (the base's own weight) or whole.
    """

    module: str
    kind: str


def part_of(name: str) -> AdapterPart:
    """Say what a tensor is by its name in the file."""
    path = name.removeprefix(PREFIX)
    match = _PART.match(path)
    if match is None:
        return AdapterPart(path.replace(".base_layer.", "."), "whole")
    if table := match["table"]:
        return AdapterPart(match["module"], f"E{table}")
    others = {"M": match["magnitude"], "bias": match["bias"], "rows": match["rows"], "frozen": match["frozen"]}
    kind = match["matrix"] or next(kind for kind, found in others.items() if found)
    return AdapterPart(match["module"], kind)


@dataclass(frozen=True)
class AdapterFiles:
    """The content of an adapter's two files but for the numbers.

    Attributes:
        folder: folder of the files.
        config: content of adapter_config.json.
        tensors: every tensor of the weights' file by its name there.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor by its name in the file."""
        return {name: stored.shape for name, stored in self.tensors.items()}

    @cached_property
    def trained(self) -> dict[str, tuple[int, ...]]:
        """The shape of every trained tensor by its name in the file."""
        return trained_shapes(self.shapes, tied=bool(self.config.get("ensure_weight_tying")))

    @property
    def ties_matrices(self) -> bool:
        """Whether embedding and head share their low-rank matrices (PEFT's `ensure_weight_tying`)."""
        kinds = {part_of(name).kind for name in self.tensors} if self.config.get("ensure_weight_tying") else set[str]()
        return "EA" in kinds

    @property
    def whole_matrix(self) -> str:
        """A matrix of a layer that is trained whole, or as a parameter of its own; empty where there is none."""
        whole = (part_of(name).module for name, shape in self.trained.items() if len(shape) > 1 and _is_whole(name))
        return next((path for path in whole if _is_in_layer(path)), "") or next(iter(other_parameters(self.config)), "")

    @property
    def obstacle(self) -> str:
        """Why the fast engine does not do this adapter, completing "The adapter ..."; empty where it does."""
        if reason := why_not_plain_lora(self.config):
            return reason
        gates = [path for path in reached_modules(self.trained) if path.endswith(f".{USUAL_MATRICES.shared_gate}")]
        if gates:  # PEFT's "all-linear" reaches them
            return f"adapts {gates[0]}, which is no matrix of an expert"
        beyond = beyond_layers(self.trained)
        return f"trains {beyond[0].text}" if beyond else ""


def read_files(folder: Path) -> AdapterFiles:
    """Read the config of an adapter and the header of its weights.

    Raises:
        SetupError: A file is missing or damaged, there are no tensors, or one of them has no floating-point numbers of
            16 bits or more.
    """
    if not is_file(folder / WEIGHTS_FILE):
        raise SetupError(f"{folder} holds no adapter ({WEIGHTS_FILE}).", "Check the run or folder given.")
    files = AdapterFiles(folder, read_config(folder), stored_tensors(folder / WEIGHTS_FILE))
    if not files.tensors:
        raise SetupError(f"The adapter in {folder} has no tensors.", "Copy it again, or use a finished run's adapter.")
    odd = sorted(name for name, stored in files.tensors.items() if stored.dtype not in PLAIN_TYPES)
    if odd:
        raise SetupError(
            f"The adapter in {folder} has {len(odd)} tensors that are no floating-point numbers of 16 bits or more: "
            f"{odd[0]} is of the type {files.tensors[odd[0]].dtype}.",
            "Save it again in fp32, bf16 or fp16, with the program that made it.",
        )
    return files


def refuse_other_parts(files: AdapterFiles) -> None:
    """Refuse an adapter that has half of a pair of matrices, or magnitudes without `use_dora` in its config.

    Raises:
        SetupError: A tensor is missing, or has no place in a model.
    """
    parts = {part_of(name): name for name in files.tensors}
    dora = bool(files.config.get("use_dora"))
    ends = {"A": "lora_A.weight", "B": "lora_B.weight", "EA": "lora_embedding_A", "EB": "lora_embedding_B"}
    missing = list[str]()
    for part in parts:
        pair = {"A": "B", "B": "A", "EA": "EB", "EB": "EA"}.get(part.kind)
        if pair and AdapterPart(part.module, pair) not in parts:
            missing.append(f"{PREFIX}{part.module}.{ends[pair]}")
        if pair and dora and AdapterPart(part.module, "M") not in parts:
            missing.append(f"{PREFIX}{part.module}.lora_magnitude_vector")
    refuse_missing(files.folder, missing)
    strange = [name for part, name in parts.items() if part.kind == "M" and not dora]
    refuse_strange(files.folder, strange + [name for name in files.tensors if not name.startswith(PREFIX)])


def refuse_broken_values(files: AdapterFiles) -> None:
    """Refuse an adapter some of whose values are infinite or no numbers; a file that stays as it is is read once.

    Raises:
        SetupError: There are such values, or the file cannot be read.
    """
    try:
        state = (files.folder / WEIGHTS_FILE).stat()
        broken = _broken_tensors(files.folder / WEIGHTS_FILE, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise SetupError(
            f"The adapter in {files.folder} cannot be read: {error.strerror or error}.", "Check permissions and disk."
        ) from error
    refuse_not_finite(files.folder, broken)


@lru_cache(maxsize=8)
def _broken_tensors(file: Path, _changed_ns: int, _size: int) -> tuple[str, ...]:
    return tuple(name for name, stored in stored_tensors(file).items() if not _is_finite(stored))


def _is_finite(stored: StoredTensor) -> bool:
    """Whether no value of a plain tensor has an exponent of ones alone, as infinities and NaN have."""
    kind, ones = _EXPONENTS[stored.dtype]
    with stored.file.open("rb") as opened:
        opened.seek(stored.start)
        for start in range(stored.start, stored.end, _READ_BYTES):
            part = np.frombuffer(opened.read(min(_READ_BYTES, stored.end - start)), kind)
            if bool(((part & ones) == ones).any()):
                return False
    return True


def trained_shapes(shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Leave out the tensors of an adapter that are frozen, and a head that is trained as the embedding.

    Args:
        shapes: shape of each tensor by its name in PEFT's file.
        tied: whether embedding and head are trained as one (PEFT's `ensure_weight_tying`).
    """
    kinds = {name: part_of(name).kind for name in shapes}
    left_out = {name for name, kind in kinds.items() if kind == "frozen"}
    whole = {name for name, kind in kinds.items() if kind == "whole"}
    if tied and any(name.endswith(".embed_tokens.weight") for name in whole):
        left_out |= {name for name in whole if name.endswith(".lm_head.weight")}
    return {name: shape for name, shape in shapes.items() if name not in left_out}


def beyond_layers(shapes: Mapping[str, tuple[int, ...]]) -> tuple[BeyondLayers, ...]:
    """List what tensors of an adapter train beside the matrices of the decoder layers.

    Args:
        shapes: shape of each trained tensor, by its name in PEFT's file.
    """
    found: dict[tuple[str, str], BeyondLayers] = {}
    for name, shape in shapes.items():
        part = part_of(name)
        path = part.module.removesuffix(".weight") if part.kind == "whole" else part.module
        bias = part.kind == "bias" or (part.kind == "whole" and path.endswith("bias"))
        if not bias and part.kind != "rows" and _is_in_layer(path) and not (part.kind == "whole" and len(shape) < 2):
            continue
        how = "rows" if part.kind == "rows" else "whole" if part.kind == "whole" or bias else "adapter"
        last = "biases" if bias else path.rpartition(".")[2]
        before = found.get((last, how))
        found[last, how] = BeyondLayers(
            name=last,
            how=how,
            weights=math.prod(shape) + (before.weights if before else 0),
            rows=shape[0] if how == "rows" else 0,
        )
    return tuple(found[key] for key in sorted(found))


def reached_modules(names: Iterable[str]) -> tuple[str, ...]:
    """List the modules of an adapter's tensors by their names in its file; vectors and rows of tokens do not count."""
    parts = [part_of(name) for name in names]
    whole = {part.module.removesuffix(".weight") for part in parts if part.kind == "whole"}
    return tuple(sorted(whole | {part.module.replace(".base_layer", "") for part in parts if part.kind == "A"}))


def other_parameters(config: Mapping[str, Any]) -> list[str]:
    """List the parameters that a config adapts and that are no matrices of experts (PEFT's `target_parameters`)."""
    said = config.get("target_parameters")
    names = map(str, said) if isinstance(said, list) else ()
    return [name for name in names if name.rpartition(".")[2] not in EXPERT_MATRICES]


def why_not_lora(config: Mapping[str, Any]) -> str:
    """Explain why an adapter is more than sums with single weights, completing "The adapter ..."; empty where not."""
    if str(config.get("peft_type", "LORA")).upper() != "LORA":
        return f"is of the type {config.get('peft_type')}, not LoRA"
    start = str(config.get("init_lora_weights", True)).lower()
    if start.startswith(_BASE_CHANGING_STARTS):
        return f"changes its base's own weights ({start})"
    return next((reason for key, reason in _OTHER_KINDS.items() if config.get(key)), "")


def why_not_plain_lora(config: Mapping[str, Any]) -> str:
    """Explain why the fast decoder does not do an adapter, completing "The adapter ..."; empty where it does."""
    if reason := why_not_lora(config):
        return reason
    if str(config.get("bias") or "none") != "none":
        return "holds biases"
    if other := other_parameters(config):  # PEFT's "all-linear" reaches the routers of a mixture too
        return f"adapts {other[0]}, which is no matrix of experts"
    return next((reason for key, reason in _BEYOND_LORA.items() if config.get(key)), "")


def token_rows(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tokens whose rows an adapter trains, by the name of the module; of a bare list it is the embedding's.

    Raises:
        SetupError: The setting is neither a list of tokens nor such lists by module.
    """
    said = config.get("trainable_token_indices") or {}
    by_module = {"": said} if isinstance(said, list) else said
    if not isinstance(by_module, dict) or not all(map(_are_tokens, by_module.values())):
        raise SetupError(
            f"The adapter has trainable_token_indices = {str(said)[:60]}, which are no token ids.",
            "Correct its adapter_config.json.",
        )
    return {str(name): list(rows) for name, rows in by_module.items()}


def _is_whole(name: str) -> bool:
    return part_of(name).kind == "whole"


def _is_in_layer(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
