"""A whole model whose weights, gradients and moments are shared out over ranks: torch's FSDP2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from typing_extensions import override

from burnish_engine.advise.predict.plain.whole_model_memory import GATHERED_SHARE
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.device.precision import DTYPES
from burnish_engine.models.transformers_path import plain
from burnish_engine.train.plain.layout_choice import COMPUTE_DTYPE
from burnish_engine.train.plain.whole_model import WholeModel


class ShardedWholeModel(WholeModel):
    """A transformers model of which each rank holds a part, in fp32; layers are gathered to compute, ahead of need.

    Every method but `drop_gradients` and `collect_gradients` has to be called on all ranks at once, and so has the
    model: in a forward or backward pass all ranks gather and reduce together, whatever data each has.

    Args:
        source: model to start from, or one that `save` wrote.
        precision: compute precision, "fp32" or "bf16".
        device: device of this rank.

    Attributes:
        parameters: pairs of name and this rank's part of the weight, some of its rows or none.

    Raises:
        UsageError: The model's weights are stored quantized.
        SetupError: The model cannot be loaded.
    """

    def __init__(self, source: ModelSource, precision: str, device: torch.device) -> None:
        self._refuse_quantized(source)
        self._source, self._copies = source, []
        self.model = plain.load_base(source, "fp32", torch.device("cpu"))
        self.model.requires_grad_(True)
        self._class = type(self.model)
        shard(self.model, DTYPES[precision], device)
        self._sharded: dict[str, DTensor] = dict(plain.trainable_parameters(self.model))
        self.parameters = [
            (name, torch.nn.Parameter(value.to_local().detach())) for name, value in self._sharded.items()
        ]

    def collect_gradients(self) -> None:
        """Give the parts of the weights the gradients that the passes so far have added up over all ranks."""
        for (_, own), value in zip(self.parameters, self._sharded.values(), strict=True):
            gradient = value.grad
            own.grad = gradient.to_local() if isinstance(gradient, DTensor) else None

    @override
    def drop_gradients(self) -> None:
        self.model.zero_grad(set_to_none=True)
        for _, own in self.parameters:
            own.grad = None

    @override
    def save(self, folder: Path) -> None:
        """Gather the weights on all ranks; rank 0 writes them, as `WholeModel.save` does."""
        values = self.model.state_dict(keep_vars=True)
        whole: dict[int, torch.Tensor] = {}
        for value in values.values():  # tied weights stay one tensor
            if id(value) not in whole:
                full = value.detach().full_tensor() if isinstance(value, DTensor) else value.detach()
                whole[id(value)] = full.cpu() if torch.distributed.get_rank() == 0 else torch.empty(0)
        if torch.distributed.get_rank() == 0:
            of_fsdp, self.model.__class__ = type(self.model), self._class  # its name stands in config.json
            try:
                self._write(folder, {key: whole[id(value)] for key, value in values.items()})
            finally:
                self.model.__class__ = of_fsdp
            self._write_beside(folder)

    def gather_state(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gather an optimizer's state, which each rank has of its parts, into that of the whole weights, on the CPU.

        Args:
            own: tensors of this rank, "NAME/KEY"; what is no part of weight NAME is alike on all ranks.

        Returns:
            The whole state on rank 0; on the others, which often share its host memory, empty tensors.
        """
        found: dict[str, torch.Tensor] = {}
        for name in sorted(own):
            value, part = self._sharded.get(name.rpartition("/")[0]), own[name]
            if value is None or part.shape != value.to_local().shape:
                found[name] = part
                continue
            mesh, how = value.device_mesh, value.placements
            placed = DTensor.from_local(
                part.to(value.device), mesh, how, run_check=False, shape=value.shape, stride=value.stride()
            )
            whole = placed.full_tensor()
            found[name] = whole.cpu() if torch.distributed.get_rank() == 0 else torch.empty(0)
        return found

    def part_of(self, name: str, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """Return this rank's part of a tensor of an optimizer's whole state, as `gather_state` made it."""
        value = self._sharded.get(name.rpartition("/")[0])
        if value is None or whole.shape != value.shape:
            return whole
        parts = whole.chunk(size)
        return parts[rank].clone() if rank < len(parts) else whole[:0]


def shard(model: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Share a transformers model out over all ranks, by decoder layers, with sums of gradients in fp32.

    Args:
        model: model in fp32 on the CPU.
        dtype: dtype to compute in.
        device: device of this rank.
    """
    size = torch.distributed.get_world_size()
    mesh = init_device_mesh(device.type, (size,))
    policy = MixedPrecisionPolicy(param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32)
    copy_bytes = sum(value.numel() for value in model.parameters()) * dtype.itemsize
    keeps = device.type == "cuda" and copy_bytes < GATHERED_SHARE * _least_free(device)
    setattr(model, COMPUTE_DTYPE, dtype)
    layers = _layers(model)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not keeps)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for first, then in pairwise(layers):
        first.set_modules_to_forward_prefetch([then])
        then.set_modules_to_backward_prefetch([first])
    for part in (*layers, model):
        part.set_gradient_divide_factor(1.0)  # each rank divides by the supervised tokens of the whole step
        part.set_force_sum_reduction_for_comms(True)  # gloo has no other


def _least_free(device: torch.device) -> int:
    """Return the free memory of the GPU that has least, bytes: all ranks have to decide alike."""
    free = torch.tensor([torch.cuda.mem_get_info(device)[0]], dtype=torch.int64, device=device)
    torch.distributed.all_reduce(free, torch.distributed.ReduceOp.MIN)
    return int(free)


def _layers(model: Any) -> Sequence[Any]:
    """Return the decoder's layers: the longest list of modules in the model."""
    lists = [list(module) for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])
