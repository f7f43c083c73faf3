"""Launch the kernels of the gated delta rule, some key heads at a time. Launchers assert and never allocate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton

from burnish_kernels.delta_rule.config import Config, capability_of, config, precision, segments
from burnish_kernels.delta_rule.gradients.kernel import delta_dkeys_kernel, delta_dvalues_kernel
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

    def gate_inputs(self) -> dict[str, torch.Tensor | int]:
        own, given = self.value_heads, self.inputs
        return {
            "b_ptr": given.b_TV[:, own],
            "a_ptr": given.a_TV[:, own],
            "a_log_ptr": given.a_log_V[own],
            "dt_bias_ptr": given.dt_bias_V[own],
            "b_stride": given.b_TV.stride(0),
            "a_stride": given.a_TV.stride(0),
        }

    def scratch(self, *names: str) -> dict[str, torch.Tensor]:
        """Return parts of the scratch memory as kernels name them."""
        space = self.space
        known = {
            "gates_ptr": space.gates_4WP,
            "unit_q_ptr": space.q_GPD,
            "unit_k_ptr": space.k_GPD,
            "inverse_ptr": space.inverse_WPL,
            "w_ptr": space.w_WPD,
            "u_ptr": space.u_WPE,
            "states_ptr": space.states_WNDE,
            "du_ptr": space.u_WPE if space.du_WPE is None else space.du_WPE,
            "dstates_ptr": space.dstates_WNDE,
        }
        return {f"{name}_ptr": known[f"{name}_ptr"] for name in names}

    def common(self, *, values: bool = True) -> dict[str, Any]:
        """Return sizes and constants that kernels share."""
        sizes = self.inputs.sizes
        found = {
            "T": self.rows,
            "chunks": self.space.states_WNDE.shape[1],
            "W": self.heads * sizes.shared,
            "SHARED": sizes.shared,
            "CHUNK": chunk_rows(self.inputs.qkv_TC.dtype),
            "D": sizes.key_size,
            "PRECISION": precision(),
        }
        return found | {"E": sizes.value_size} if values else found

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
        common, scale = group.common(), inputs.sizes.key_size**-0.5
        _launch_chunks(group, None)
        _launch_states(group)
        tile = group.config("output")
        delta_output_kernel[(common["chunks"] * common["W"],)](
            start_ptr=inputs.start_T,
            **group.scratch("gates", "unit_q", "unit_k", "w", "u", "states"),
            o_ptr=group.values(o_TJ),
            o_stride=o_TJ.stride(0),
            scale=scale,
            **common,
            **tile.constants(inputs.sizes),
            **_options(tile),
        )
        if last_R is not None and states_RVDE is not None and len(last_R):
            tile = group.config("last_states")
            delta_last_states_kernel[len(last_R), common["W"], common["E"] // tile.constants(inputs.sizes)["BLOCK"]](
                last_ptr=last_R,
                start_ptr=inputs.start_T,
                **group.scratch("gates", "unit_k", "w", "u", "states"),
                behind_ptr=states_RVDE[:, group.value_heads],
                behind_stride=states_RVDE.stride(0),
                **common,
                **tile.constants(inputs.sizes),
                **_options(tile),
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
        common, scale = group.common(), inputs.sizes.key_size**-0.5
        do = group.values(do_TJ)
        _launch_chunks(group, do)
        _launch_states(group)
        tile = group.config("dstates")
        delta_dstates_kernel[_scan_grid(group, tile)](
            do_ptr=do,
            start_ptr=inputs.start_T,
            **group.scratch("gates", "unit_q", "unit_k", "w", "du", "dstates"),
            do_stride=do_TJ.stride(0),
            scale=scale,
            **common,
            **tile.constants(inputs.sizes),
            **segments(),
            **_options(tile),
        )
        q, k, v = group.parts(inputs.qkv_TC)
        dq, dk, dv = group.parts(dqkv_TC)
        chunk_inputs = {
            "do_ptr": do,
            **group.scratch("gates", "unit_q", "unit_k", "inverse", "u", "du", "states", "dstates"),
            "do_stride": do_TJ.stride(0),
            "qkv_stride": inputs.qkv_TC.stride(0),
            "dqkv_stride": dqkv_TC.stride(0),
            "scale": scale,
            **common,
        }
        tile = group.config("dvalues")
        delta_dvalues_kernel[(common["chunks"] * common["W"],)](
            v_ptr=v,
            **group.gate_inputs(),
            start_ptr=inputs.start_T,
            dv_ptr=dv,
            db_ptr=db_TV[:, group.value_heads],
            da_ptr=da_TV[:, group.value_heads],
            db_stride=db_TV.stride(0),
            da_stride=da_TV.stride(0),
            **chunk_inputs,
            **tile.constants(inputs.sizes),
            **_options(tile),
        )
        tile = group.config("dkeys")
        delta_dkeys_kernel[(common["chunks"] * group.heads,)](
            q_ptr=q,
            k_ptr=k,
            dq_ptr=dq,
            dk_ptr=dk,
            **chunk_inputs,
            **tile.constants(inputs.sizes),
            **_options(tile),
        )


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


def _launch_chunks(group: _Group, do: torch.Tensor | None) -> None:
    """Compute what each chunk needs of itself; with the output's gradient also its part in that of the new values."""
    inputs, common = group.inputs, group.common()
    q, k, v = group.parts(inputs.qkv_TC)
    grid = (common["chunks"] * common["W"],)
    solve, project = group.config("solve"), group.config("project")
    delta_solve_kernel[grid](
        q_ptr=q,
        k_ptr=k,
        **group.gate_inputs(),
        start_ptr=inputs.start_T,
        **group.scratch("gates", "unit_q", "unit_k", "inverse"),
        qkv_stride=inputs.qkv_TC.stride(0),
        **group.common(values=False),
        **solve.constants(inputs.sizes),
        EXACT=precision(),
        **_options(solve),
    )
    delta_project_kernel[grid](
        v_ptr=v,
        do_ptr=v if do is None else do,
        start_ptr=inputs.start_T,
        **group.scratch("gates", "unit_q", "unit_k", "inverse", "w", "u", "du"),
        qkv_stride=inputs.qkv_TC.stride(0),
        do_stride=0 if do is None else do.stride(0),
        scale=inputs.sizes.key_size**-0.5,
        **common,
        BACKWARD=do is not None,
        **project.constants(inputs.sizes),
        **_options(project),
    )


def _launch_states(group: _Group) -> None:
    """Compute the state before each chunk."""
    tile = group.config("states")
    sizes = {name: size for name, size in group.common().items() if name != "T"}
    delta_states_kernel[_scan_grid(group, tile)](
        start_ptr=group.inputs.start_T,
        **group.scratch("gates", "unit_k", "w", "u", "states"),
        **sizes,
        **tile.constants(group.inputs.sizes),
        **segments(),
        **_options(tile),
    )


def _scan_grid(group: _Group, tile: Config) -> tuple[int]:
    common, sizes = group.common(), group.inputs.sizes
    blocks = sizes.value_size // tile.constants(sizes)["BLOCK"]
    return (triton.cdiv(common["chunks"], segments()["SEGMENT"]) * common["W"] * blocks,)


def _options(tile: Config) -> dict[str, Any]:
    return {"num_warps": tile.warps, "num_stages": tile.stages}
