"""List the matrices of a transformers model, built without weights where only its shape counts."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from burnish_engine.contract.facts.coverage import Coverage, Matrix, count_coverage
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.meta_model import made_names, meta_model
from burnish_engine.models.checkpoint.spec import rough_spec
from burnish_engine.models.families.matrices import EMBEDDING, HEAD, ROUTER, is_in_4_bits
from burnish_engine.models.saved_adapters.adapter_files import beyond_layers, trained_shapes
from burnish_engine.models.transformers_path.mixer_memory import kept_by_mixers
from burnish_engine.models.transformers_path.nf4_linear import Nf4Linear, stored_weight
from burnish_engine.models.transformers_path.peft_import import import_peft

_log = logging.getLogger(__name__)

_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "num_experts", "num_local_experts",
    "num_experts_per_tok", "moe_intermediate_size", "tie_word_embeddings",
)  # fmt: skip
_KINDS = (
    ("attn", "linear_attn", "linear attention"), ("att", "", "attention"), ("conv", "", "convolution"),
    ("mamba", "", "state space"), ("temporal_block", "", "state space"), ("mlstm", "", "state space"),
    ("mlp", "", "feed-forward"), ("ffn", "", "feed-forward"), ("feed_forward", "", "feed-forward"),
    ("fc", "", "feed-forward"), ("lin", "", "feed-forward"), ("intermediate", "", "feed-forward"),
    ("output", "", "feed-forward"), ("moe", "", "feed-forward"),
)  # fmt: skip
_MIXER = {"q_proj": "attention", "k_proj": "attention", "v_proj": "attention", "o_proj": "attention"}
_MIXER |= {"up_proj": "feed-forward", "down_proj": "feed-forward"}
_CROSS_ATTENTION = {"encoder_attn", "crossattention", "cross_attn"}
"""Names of the parts that attend to an encoder. A causal language model has none, so that they take no part in it."""
_BARRED = {
    **dict.fromkeys(("falcon_h1", "mamba2", "nemotron_h"), ("out_proj",)),
    **dict.fromkeys(("mamba", "falcon_mamba"), ("out_proj", "dt_proj")),
    "jamba": ("dt_proj",),
}
"""Model types and the matrices that an adapter does not reach: PEFT refuses out_proj, which fused kernels go around
(`_check_lora_target_modules_mamba`), and transformers multiplies by dt_proj's own weight (modeling_mamba.py)."""


@dataclass(frozen=True, eq=False)
class PlacedMatrix:
    """A matrix and its position in a model.

    Attributes:
        path: name of its parameter in the model.
        layer: number of its decoder layer; None outside of them.
        matrix: name below the layer, kind and shape.
        value: parameter of the model.
    """

    path: str
    layer: int | None
    matrix: Matrix
    value: torch.nn.Parameter

    @property
    def module(self) -> str:
        """Name of the linear layer."""
        return self.path.removesuffix(".weight")


def placed_matrices(model: Any) -> list[PlacedMatrix]:
    """List the matrices that a model computes with, except embeddings and head, in order, before PEFT wraps it."""
    modules = dict(model.named_modules())
    left_out = {id(module.weight) for module in modules.values() if isinstance(module, torch.nn.Embedding)}
    head = model.get_output_embeddings()
    left_out |= {id(head.weight)} if hasattr(head, "weight") else set()
    named = [(path, value) for path, value in _weights_of(model, modules) if _is_matrix(path, value)]
    paths = [path for path, _ in named]
    decoder = _decoder_path(model, modules, paths)
    model_type = str(getattr(model.config, "model_type", ""))
    found = []
    for path, value in named:
        if id(value) in left_out or _CROSS_ATTENTION & set(path.split(".")):
            continue
        layer, name = _place(path, decoder)
        kind = _kind(path, name, paths)
        owner = modules[path.rpartition(".")[0]]
        stored = stored_weight(owner) if isinstance(owner, Nf4Linear) else value
        found.append(PlacedMatrix(path, layer, _matrix(name, kind, owner, value, model_type), stored))
    return found


def placed_tables(model: Any) -> list[PlacedMatrix]:
    """List embedding and head of a model where an adapter fits them, before PEFT wraps it; see `matrices.tables`."""
    found = []
    for kind, module in ((EMBEDDING, model.get_input_embeddings()), (HEAD, model.get_output_embeddings())):
        path = next((name for name, one in model.named_modules() if one is module), "")
        if path and isinstance(module, torch.nn.Embedding if kind == EMBEDDING else torch.nn.Linear):
            rows, columns = module.weight.shape if kind == HEAD else reversed(module.weight.shape)
            matrix = Matrix(name=path, kind=kind, rows=rows, columns=columns)
            found.append(PlacedMatrix(f"{path}.weight", None, matrix, module.weight))
    return found


def quantize_base(model: Any, device: torch.device) -> Any:
    """Keep the linear layers of a frozen model's decoder layers in NF4 and bring all of it to a device.

    Experts that are stacked in one parameter, routers, embeddings and head stay as they are.

    Args:
        model: model in the memory of the host, so that the device never holds its 16-bit weights.
        device: device that computes.
    """
    for name in quantized_modules(model):
        place, _, last = name.rpartition(".")
        parent = model.get_submodule(place)
        setattr(parent, last, Nf4Linear(getattr(parent, last), device))
    return model.to(device)


def quantized_modules(model: Any) -> list[str]:
    """Return the names of the linear layers that `quantize_base` keeps in NF4."""
    return [
        one.module
        for one in placed_matrices(model)
        if one.layer is not None
        and is_in_4_bits(one.matrix)
        and type(model.get_submodule(one.module)) is torch.nn.Linear
    ]


def _weights_of(model: Any, modules: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a model's parameters; for a layer in NF4 a tensor of the shape of its weight, under the weight's name."""
    for path, value in model.named_parameters():
        place = path.rpartition(".")[0]
        owner = modules[place]
        if not isinstance(owner, Nf4Linear):
            yield path, value
        elif value is owner.stored:
            yield f"{place}.weight", torch.empty(owner.out_features, owner.in_features, device="meta")


def inside_and_outside(matrices: Sequence[PlacedMatrix]) -> tuple[list[Matrix], list[Matrix]]:
    """Return the matrices of the decoder layers, and the others."""
    return (
        [one.matrix for one in matrices if one.layer is not None],
        [one.matrix for one in matrices if one.layer is None],
    )


def measured_coverage(matrices: list[PlacedMatrix], model: Any) -> Coverage:
    """Count the matrices of a model that its adapter reaches, or that are trained themselves.

    Args:
        matrices: matrices of the model, taken before PEFT wrapped it.
        model: the PEFT model, or the whole model that is trained.
    """
    peft = import_peft()
    from peft.tuners.lora.layer import LoraLayer, ParamWrapper
    from peft.utils.other import ModulesToSaveWrapper

    reached = {id(value) for value in model.parameters() if value.requires_grad}
    for module in model.modules():
        if isinstance(module, ParamWrapper):
            reached.add(id(module.get_param()))
        elif isinstance(module, LoraLayer):
            reached.add(id(stored_weight(module.get_base_layer())))
        elif isinstance(module, ModulesToSaveWrapper):
            reached |= {id(value) for value in module.original_module.parameters()}
    inside = [one for one in matrices if one.layer is not None]
    trained: dict[str, tuple[int, ...]] = {}
    if isinstance(model, peft.PeftModel):
        named = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
        shapes = {name: tuple(value.shape) for name, value in named.items()}
        trained = trained_shapes(shapes, tied=model.peft_config["default"].ensure_weight_tying)
    return count_coverage(((one.matrix, id(one.value) in reached) for one in inside), beyond_layers(trained))


def measured_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """Build a model without weights and return its specification; None where it cannot be built or counted.

    Sizes are rough, as `rough_spec` reads them; the matrices and the number of all weights are exact.

    Args:
        config: parsed `config.json` of the checkpoint.
    """
    return _measured_spec(json.dumps(config, sort_keys=True))


@lru_cache(maxsize=8)
def _measured_spec(text: str) -> DecoderSpec | None:
    read = json.loads(text)
    try:
        model = meta_model(read)
    # transformers builds foreign configs: what it does not like ends in errors of any kind
    except Exception:  # noqa: BLE001
        return None
    try:
        return _built_spec(model, read)
    except Exception as error:  # noqa: BLE001  a foreign architecture may be of a form that is not foreseen here
        _log.warning(
            "The layers of this model (%s) could not be counted, so that what it takes is predicted roughly: %s: %s",
            read.get("model_type"), type(error).__name__, error,
        )  # fmt: skip
        return None


def _built_spec(model: Any, read: dict[str, Any]) -> DecoderSpec | None:
    inner = model.config.get_text_config()
    sizes = {key: _size_of(inner, key) for key in _SIZES}
    made = made_names(model)
    matrices = [_with_storage(one, made) for one in placed_matrices(model)]
    sizes["intermediate_size"] = sizes["intermediate_size"] or _widest(matrices) or sizes["hidden_size"]
    if not any(one.matrix.kind == "attention" for one in matrices):  # such as Mamba, whose configs have no heads
        sizes["num_attention_heads"] = sizes["num_attention_heads"] or 1
    rough = rough_spec({key: value for key, value in sizes.items() if value is not None} | {"model_type": "unknown"})
    if rough is None:
        return None
    kept = kept_by_mixers(model, matrices, rough.hidden_size)
    by_layer: dict[int, list[Matrix]] = {}
    for one in matrices:
        if one.layer is not None:
            by_layer.setdefault(one.layer, []).append(one.matrix)
    layers = [
        rough.layers[0].model_copy(
            update={
                "matrices": tuple(of_layer),
                "feed_forward": _feed_forward(of_layer),
                "kind": _layer_kind(of_layer),
                "mixer_kept": kept.get(number),
            }
        )
        for number, of_layer in sorted(by_layer.items())
    ]
    return rough.model_copy(
        update={
            "family": str(getattr(inner, "model_type", read.get("model_type"))),
            "layers": layers,
            "qk_norm": any(path.endswith("q_norm.weight") for path, _ in model.named_parameters()),
            "weights": sum(value.numel() for value in model.parameters()),
            "outside": tuple(one.matrix for one in matrices if one.layer is None),
            "tables": tuple(one.matrix for one in placed_tables(model)),
        }
    )


def _with_storage(placed: PlacedMatrix, made: set[str]) -> PlacedMatrix:
    """Return a matrix that says whether files hold it as a tensor of its own."""
    if placed.path not in made:
        return placed
    return replace(placed, matrix=placed.matrix.model_copy(update={"stored": False}))


def _size_of(config: Any, key: str) -> Any:
    """Return a setting by the name that most families have for it; None where there is none."""
    try:
        return getattr(config, key, None)
    except Exception:  # noqa: BLE001  some configs refuse what differs from layer to layer, with errors of their own
        return config.to_dict().get(key)


def _is_matrix(path: str, value: torch.Tensor) -> bool:
    return "bias" not in path.rpartition(".")[2] and sum(size > 1 for size in value.shape) > 1


def _decoder_path(model: Any, modules: dict[str, Any], paths: list[str]) -> str:
    """Return the path of the text decoder in a model, with a dot behind it; empty for the whole model."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    path = next((name for name, module in modules.items() if module is decoder), "")
    prefix = f"{path}." if path else ""
    return prefix if any(_place(one, prefix)[0] is not None for one in paths) else ""


def _place(path: str, decoder: str) -> tuple[int | None, str]:
    """Return the layer number of a parameter, and the name of its matrix below the layer, without ".weight"."""
    name = path.removesuffix(".weight")
    parts = name.removeprefix(decoder).split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    if number is None or not path.startswith(decoder) or number + 1 == len(parts):
        return None, name
    return int(parts[number]), ".".join(parts[number + 1 :])


def _matrix(name: str, kind: str, owner: torch.nn.Module, value: torch.Tensor, model_type: str) -> Matrix:
    shape = tuple(value.shape)
    if isinstance(owner, torch.nn.Linear) or type(owner).__name__ == "Conv1D":  # transformers' own, of GPT-2
        rows, columns = shape if isinstance(owner, torch.nn.Linear) else shape[::-1]
        barred = name.rpartition(".")[2] in _BARRED.get(model_type, ())
        return Matrix(name=name, kind=kind, rows=rows, columns=columns, form="other" if barred else "linear")
    if len(shape) == 3 and min(shape) > 1 and not isinstance(owner, torch.nn.modules.conv._ConvNd):
        rows, columns = shape[:0:-1] if getattr(owner, "is_transposed", False) else shape[1:]
        return Matrix(name=name, kind=kind, rows=rows, columns=columns, count=shape[0], form="stacked")
    return Matrix(name=name, kind=kind, rows=shape[0], columns=math.prod(shape[1:]), form="other")


def _kind(path: str, name: str, paths: list[str]) -> str:
    """Return the part of the model that a matrix belongs to, judged by the names on its path."""
    parts = name.split(".")
    if "router" in parts or "indexer" in parts or (parts[-1].endswith("gate") and _has_experts(path, paths)):
        return ROUTER
    expert = next((part for part in parts if "expert" in part), "")
    if expert:
        return "shared experts" if "shared" in expert else "experts"
    if parts == ["linear_attn", "conv1d"]:
        return "convolution"
    if parts[0] == "mixer":
        return _MIXER.get(parts[-1], "state space")
    for part in parts:
        for word, exact, kind in _KINDS:
            if word in part and (not exact or part == exact):
                return kind
    return "attention" if parts[-1][:2] in ("q_", "k_", "v_", "o_") else parts[0].replace("_", " ")


def _has_experts(path: str, paths: list[str]) -> bool:
    beside = path.removesuffix(".weight").rpartition(".")[0]
    return any(other.startswith(f"{beside}.") and "expert" in other[len(beside) :] for other in paths)


def _feed_forward(matrices: list[Matrix]) -> str:
    return "mixture_of_experts" if any(one.kind == "experts" for one in matrices) else "dense"


def _layer_kind(matrices: list[Matrix]) -> str:
    return "attention" if any(one.kind == "attention" for one in matrices) else "short_convolution"


def _widest(matrices: list[PlacedMatrix]) -> int:
    return max((one.matrix.rows for one in matrices if one.matrix.kind == "feed-forward"), default=0)
