"""Describe a layer's experts: their stacks in the decoder, and the tensors that checkpoints hold them in. No torch."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.matrices import ROUTER, USUAL_MATRICES

ExpertRole = Literal["gate_up", "down"]
BLOCKS, SCALES, MXFP4_BLOCK = "_blocks", "_scales", 32
"""Endings of the two tensors that hold a stack in MXFP4, and how many values share a scale."""
EXPERT_MATRICES = frozenset({"gate_up_proj", "down_proj"})
"""Last names of the stacks of experts' matrices in transformers' models."""
NORMED_ROLES = {
    "router_scale": "router.scale", "expert_scale": "router.per_expert_scale",
    "shared_post_norm": "post_feedforward_layernorm_1.weight", "expert_norm": "pre_feedforward_layernorm_2.weight",
    "expert_post_norm": "post_feedforward_layernorm_2.weight",
}  # fmt: skip
"""Parameters of a mixture whose shared expert has norms of its own, and their names below a layer (Gemma 4)."""
EXPERT_ROLES = frozenset(
    {"router_weight", "router_bias", "selection_bias", "shared_gate", "gate_up_bias", "down_bias", *NORMED_ROLES}
)
"""Parameters of a mixture beside the experts' matrices."""


@dataclass(frozen=True)
class ExpertStack:
    """The matrices of all experts of a layer for one of the two linear maps.

    Attributes:
        path: name of the parameter in transformers' model, such as `model.layers.3.mlp.experts.gate_up_proj`.
        layer: number of the decoder layer.
        role: "gate_up" or "down".
        experts: number of experts, E.
        rows: outputs of one expert, N: 2I of "gate_up", the hidden size of "down".
        columns: inputs of one expert, K.
        bias: whether each expert has a bias of N numbers.
    """

    path: str
    layer: int
    role: ExpertRole
    experts: int
    rows: int
    columns: int
    bias: bool


@dataclass(frozen=True)
class ExpertNames:
    """The names of experts in a family's files.

    Attributes:
        place: feed-forward of a layer in the files, such as `mlp`; empty: files have whole stacks `[E, N, K]`, under
            the names of transformers' model.
        gate: matrix of one expert whose output is activated.
        up: matrix of one expert whose output is multiplied with that.
        down: matrix of one expert back to the hidden size.
        transposed: whether files hold whole stacks `[E, K, N]` (gpt-oss), instead of a tensor for each matrix.
        selection_bias: name of the bias that helps to choose, below the place.
        router: name of the matrix that chooses, below the place; empty: that in transformers' model.
        stacks: names of whole stacks `[E, N, K]`, below the place, where files hold those instead of single matrices.
    """

    place: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    transposed: bool = False
    selection_bias: str = "expert_bias"
    router: str = ""
    stacks: Mapping[ExpertRole, str] = field(default_factory=dict)


USUAL_NAMES = ExpertNames()
"""The names that most families share."""


@dataclass(frozen=True)
class StoredExperts:
    """The tensors that a checkpoint holds a stack in.

    Attributes:
        form: "each": a tensor for each expert and matrix; "stack": one `[E, N, K]`; "transposed": one `[E, K, N]`;
            "mxfp4": blocks `[E, N, K / 32, 16]` and scales `[E, N, K / 32]`, uint8.
        tensors: name and shape of each tensor. Those of "each": by expert, gate before up.
    """

    form: Literal["each", "stack", "transposed", "mxfp4"]
    tensors: dict[str, tuple[int, ...]]


def expert_stacks(spec: DecoderSpec, layer: int, matrices: Sequence[Matrix]) -> list[ExpertStack]:
    """List the stacks of a layer, "gate_up" before "down"; none of a dense layer.

    Args:
        spec: specification of the model.
        layer: number of the layer.
        matrices: matrices of the layer.
    """
    roles: dict[str, ExpertRole] = {"gate_up_proj": "gate_up", "down_proj": "down"}
    return [
        ExpertStack(
            f"model.layers.{layer}.{matrix.name}",
            layer,
            roles[matrix.name.rpartition(".")[2]],
            matrix.count,
            matrix.rows,
            matrix.columns,
            spec.experts is not None and spec.experts.bias,
        )
        for matrix in matrices
        if matrix.form == "stacked"
    ]


def stored_experts(stack: ExpertStack, spec: DecoderSpec, names: ExpertNames, stored: Container[str]) -> StoredExperts:
    """Find out how a checkpoint holds a stack.

    Args:
        stack: stack of the decoder.
        spec: specification of the model.
        names: names in the family's files.
        stored: names of the checkpoint's tensors; where none is of the stack, the family's published form is returned.
    """
    count, rows, columns = stack.experts, stack.rows, stack.columns
    whole = path_in_files(stack.path, names)
    if f"{whole}{BLOCKS}" in stored or (spec.has_mxfp4_experts and whole not in stored):
        blocks = (count, rows, columns // MXFP4_BLOCK)
        return StoredExperts("mxfp4", {f"{whole}{BLOCKS}": (*blocks, MXFP4_BLOCK // 2), f"{whole}{SCALES}": blocks})
    if names.transposed:
        return StoredExperts("transposed", {whole: (count, columns, rows)})
    own = f"model.layers.{stack.layer}.{names.place}.{names.stacks[stack.role]}.weight" if names.stacks else whole
    for name in (stack.path, whole, own):
        if name in stored or (name == own and names.stacks):
            return StoredExperts("stack", {name: (count, rows, columns)})
    if not names.place:
        return StoredExperts("stack", {whole: (count, rows, columns)})
    parts = {names.down: rows} if stack.role == "down" else {names.gate: rows // 2, names.up: rows // 2}
    place = whole.rpartition(".")[0]
    return StoredExperts(
        "each",
        {
            f"{place}.{expert}.{part}.weight": (height, columns)
            for expert in range(count)
            for part, height in parts.items()
        },
    )


def router_and_biases(
    spec: DecoderSpec, layer: int, matrices: Sequence[Matrix], names: ExpertNames
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return name and shape of a layer's `EXPERT_ROLES` by role; empty for a dense layer.

    Args:
        spec: specification of the model.
        layer: number of the layer.
        matrices: matrices of the layer.
        names: names of experts in the family's files.
    """
    experts = spec.experts
    if experts is None or not spec.layers[layer].is_mixture:
        return {}
    (router,) = (matrix.name for matrix in matrices if matrix.kind == ROUTER)
    path = path_in_files(f"model.layers.{layer}.{router}", names)
    if names.router:
        path = f"model.layers.{layer}.{names.place}.{names.router}"
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "router_weight": (f"{path}.weight", (experts.count, spec.hidden_size))
    }
    if experts.router_bias:
        found["router_bias"] = (f"{path}.bias", (experts.count,))
    if experts.selection_bias:
        found["selection_bias"] = (f"model.layers.{layer}.{names.place}.{names.selection_bias}", (experts.count,))
    if experts.shared_size and experts.shared == "normed":
        hidden = spec.hidden_size
        for role, name in NORMED_ROLES.items():
            size = experts.count if role == "expert_scale" else hidden
            found[role] = (f"model.layers.{layer}.{name}", (size,))
    elif experts.shared_size:
        gate = f"model.layers.{layer}.{USUAL_MATRICES.shared_gate}.weight"
        found["shared_gate"] = (gate, (1, spec.hidden_size))
    if experts.bias:
        for stack in expert_stacks(spec, layer, matrices):
            found[f"{stack.role}_bias"] = (f"{path_in_files(stack.path, names)}_bias", (experts.count, stack.rows))
    return found


def parameter_name(path: str) -> str:
    """Return the end of a stack's path that PEFT's config names it by in all layers, such as mlp.experts.down_proj."""
    last = path.split(".")[-3:]
    return ".".join(last[1:] if last[0].isdigit() else last)  # experts right below the layer (Gemma 4)


def path_in_files(path: str, names: ExpertNames) -> str:
    """Return the name in the files of something in a layer's feed-forward: `model.layers.3.PLACE.rest`."""
    if not names.place:
        return path
    parts = path.split(".")
    return ".".join((*parts[:3], names.place, *parts[4:]))
