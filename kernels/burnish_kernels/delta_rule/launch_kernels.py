"""Launch the kernels of the gated delta rule, some key heads at a time. Launchers assert and never allocate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import triton

from burnish_kernels.delta_rule.config import Config, capability_of, config, precision, segments
from burnish_kernels.delta_rule.gradients.kernel import (
    delta_ddecays_kernel,
    delta_dkeys_kernel,
    delta_dvalues_kernel,
)
from burnish_kernels.delta_rule.kernel import delta_output_kernel, delta_project_kernel, delta_solve_kernel
from burnish_kernels.delta_rule.scan.kernel import (
    delta_dstates_kernel,
    delta_last_states_kernel,
    delta_states_kernel,
)
from burnish_kernels.delta_rule.sizes import Sizes, Workspace, chunk_rows, divide
from burnish_kernels.delta_rule.step.kernel import delta_step_kernel

FUNCTIONS = {
    "solve": delta_solve_kernel,
    "project": delta_project_kernel,
    "states": delta_states_kernel,
    "output": delta_output_kernel,
    "dstates": delta_dstates_kernel,
    "dvalues": delta_dvalues_kernel,
    "ddecays": delta_ddecays_kernel,
    "dkeys": delta_dkeys_kernel,
    "last_states": delta_last_states_kernel,
    "step": delta_step_kernel,
}
"""Kernel of each name in `config.KERNELS`."""


@dataclass(frozen=True)
class DeltaInputs:
    """Inputs of all passes; shapes as in `op`."""

    qkv_TC: torch.Tensor
    b_TV: torch.Tensor
    a_TV: torch.Tensor
    a_log_V: torch.Tensor
    dt_bias_V: torch.Tensor
    start_T: torch.Tensor
    sizes: Sizes


@dataclass(frozen=True)
class _Group:
    """Some key heads with the value heads that they serve.

    Attributes:
        inputs: inputs of all heads.
        first: first key head.
        heads: number of key heads.
        space: their scratch memory.
    """

    inputs: DeltaInputs
    first: int
    heads: int
    space: Workspace

    @property
    def rows(self) -> int:
        return len(self.inputs.qkv_TC)

    @property
    def value_heads(self) -> slice:
        shared = self.inputs.sizes.shared
        return slice(self.first * shared, (self.first + self.heads) * shared)

    def parts(self, qkv_TC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the queries, keys and values of these heads, or their gradients."""
        sizes = self.inputs.sizes
        keys = sizes.key_heads * sizes.key_size
        key = self.first * sizes.key_size
        return qkv_TC[:, key:], qkv_TC[:, keys + key :], self.values(qkv_TC[:, 2 * keys :])

    def values(self, o_TJ: torch.Tensor) -> torch.Tensor:
        """Return the columns of these value heads, and what follows."""
        return o_TJ[:, self.value_heads.start * self.inputs.sizes.value_size :]

    @property
    def chunks(self) -> int:
        return self.space.states_WNDE.shape[1]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Inputs, scratch memory, sizes and constants as kernels name them."""
        own, given, sizes, space = self.value_heads, self.inputs, self.inputs.sizes, self.space
        q, k, v = self.parts(given.qkv_TC)
        return {
            "q_ptr": q,
            "k_ptr": k,
            "v_ptr": v,
            "qkv_stride": given.qkv_TC.stride(0),
            "b_ptr": given.b_TV[:, own],
            "a_ptr": given.a_TV[:, own],
            "a_log_ptr": given.a_log_V[own],
            "dt_bias_ptr": given.dt_bias_V[own],
            "b_stride": given.b_TV.stride(0),
            "a_stride": given.a_TV.stride(0),
            "start_ptr": given.start_T,
            "gates_ptr": space.gates_4WP,
            "unit_q_ptr": space.q_GPD,
            "unit_k_ptr": space.k_GPD,
            "inverse_ptr": space.inverse_WPL,
            "w_ptr": space.w_WPD,
            "u_ptr": space.u_WPE,
            "states_ptr": space.states_WNDE,
            "du_ptr": space.u_WPE if space.du_WPE is None else space.du_WPE,
            "dstates_ptr": space.dstates_WNDE,
            "T": self.rows,
            "chunks": self.chunks,
            "scale": sizes.key_size**-0.5,
            "W": self.heads * sizes.shared,
            "SHARED": sizes.shared,
            "CHUNK": chunk_rows(given.qkv_TC.dtype),
            "D": sizes.key_size,
            "E": sizes.value_size,
            "PRECISION": precision(),
            "EXACT": precision(),
            **segments(),
        }

    def config(self, kernel: str) -> Config:
        qkv_TC = self.inputs.qkv_TC
        return config(kernel, qkv_TC.dtype, capability_of(qkv_TC.device))


def launch_forward(
    inputs: DeltaInputs,
    *,
    o_TJ: torch.Tensor,
    last_R: torch.Tensor | None,
    states_RVDE: torch.Tensor | None,
    workspace: torch.Tensor,
    heads_at_a_time: int,
) -> None:
    """Fill `o_TJ`, and `states_RVDE` if wanted."""
    for group in _groups(inputs, workspace, heads_at_a_time, exact_states=last_R is not None):
        grid = _by_value_head(group)
        _launch(group, "solve", grid)
        _launch(group, "project", grid, do_ptr=o_TJ, do_stride=0, BACKWARD=False)
        _launch(group, "states", _by_segment(group, "states"))
        _launch(group, "output", grid, o_ptr=group.values(o_TJ), o_stride=o_TJ.stride(0))
        if last_R is not None and states_RVDE is not None and len(last_R):
            behind = states_RVDE[:, group.value_heads]
            places = len(last_R), behind.shape[1], _blocks(group, "last_states")
            _launch(
                group, "last_states", places, last_ptr=last_R, behind_ptr=behind, behind_stride=states_RVDE.stride(0)
            )


def launch_backward(
    inputs: DeltaInputs,
    *,
    do_TJ: torch.Tensor,
    dqkv_TC: torch.Tensor,
    db_TV: torch.Tensor,
    da_TV: torch.Tensor,
    workspace: torch.Tensor,
    heads_at_a_time: int,
) -> None:
    """Fill the gradients."""
    for group in _groups(inputs, workspace, heads_at_a_time, backward=True):
        own, grid = group.value_heads, _by_value_head(group)
        do = {"do_ptr": group.values(do_TJ), "do_stride": do_TJ.stride(0)}
        dq, dk, dv = group.parts(dqkv_TC)
        dqkv = {"dq_ptr": dq, "dk_ptr": dk, "dv_ptr": dv, "dqkv_stride": dqkv_TC.stride(0)}
        gates = {"db_ptr": db_TV[:, own], "db_stride": db_TV.stride(0)}
        gates |= {"da_ptr": da_TV[:, own], "da_stride": da_TV.stride(0)}
        _launch(group, "solve", grid)
        _launch(group, "project", grid, **do, BACKWARD=True)
        _launch(group, "states", _by_segment(group, "states"))
        _launch(group, "dstates", _by_segment(group, "dstates"), **do)
        _launch(group, "dvalues", grid, **do, **dqkv, **gates)
        _launch(group, "ddecays", grid, **do, **gates)
        _launch(group, "dkeys", (group.chunks * group.heads,), **do, **dqkv)


def launch_step(
    *,
    qkv_BC: torch.Tensor,
    b_BV: torch.Tensor,
    a_BV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    state_BVDE: torch.Tensor,
    sizes: Sizes,
    o_BJ: torch.Tensor,
) -> None:
    """Fill `o_BJ` and change the states."""
    keys = sizes.key_heads * sizes.key_size
    tile = config("step", qkv_BC.dtype, capability_of(qkv_BC.device))
    constants = tile.constants(sizes)
    delta_step_kernel[len(qkv_BC), sizes.value_heads, sizes.value_size // constants["BLOCK"]](
        q_ptr=qkv_BC,
        k_ptr=qkv_BC[:, keys:],
        v_ptr=qkv_BC[:, 2 * keys :],
        b_ptr=b_BV,
        a_ptr=a_BV,
        a_log_ptr=a_log_V,
        dt_bias_ptr=dt_bias_V,
        state_ptr=state_BVDE,
        o_ptr=o_BJ,
        V=sizes.value_heads,
        qkv_stride=qkv_BC.stride(0),
        b_stride=b_BV.stride(0),
        a_stride=a_BV.stride(0),
        o_stride=o_BJ.stride(0),
        scale=sizes.key_size**-0.5,
        SHARED=sizes.shared,
        D=sizes.key_size,
        E=sizes.value_size,
        **constants,
        **_options(tile),
    )


def _groups(
    inputs: DeltaInputs,
    workspace: torch.Tensor,
    heads_at_a_time: int,
    *,
    backward: bool = False,
    exact_states: bool = False,
) -> Iterator[_Group]:
    """Yield the key heads in groups that take turns in the workspace."""
    sizes, rows, dtype = inputs.sizes, len(inputs.qkv_TC), inputs.qkv_TC.dtype
    for first in range(0, sizes.key_heads, heads_at_a_time):
        heads = min(heads_at_a_time, sizes.key_heads - first)
        space = divide(workspace, rows, sizes, heads, dtype, backward=backward, exact_states=exact_states)
        yield _Group(inputs, first, heads, space)


def _launch(group: _Group, kernel: str, grid: tuple[int, ...], **own: Any) -> None:
    """Launch a kernel with what it takes of the group's arguments and of its own."""
    function, tile = FUNCTIONS[kernel], group.config(kernel)
    known = group.arguments | own | tile.constants(group.inputs.sizes)
    taken = {name: known[name] for name in function.arg_names if name in known}
    function[grid](**taken, **_options(tile))


def _by_value_head(group: _Group) -> tuple[int]:
    return (group.chunks * group.heads * group.inputs.sizes.shared,)


def _by_segment(group: _Group, kernel: str) -> tuple[int]:
    """Return the grid of a scan."""
    heads = group.heads * group.inputs.sizes.shared
    return (triton.cdiv(group.chunks, segments()["SEGMENT"]) * heads * _blocks(group, kernel),)


def _blocks(group: _Group, kernel: str) -> int:
    """Return the number of blocks of columns of a state."""
    sizes = group.inputs.sizes
    return sizes.value_size // group.config(kernel).constants(sizes)["BLOCK"]


def _options(tile: Config) -> dict[str, Any]:
    return {"num_warps": tile.warps, "num_stages": tile.stages}
