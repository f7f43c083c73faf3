"""One linear map of all experts of a layer, frozen, with a LoRA adapter for each expert.

The frozen weights are one stack `[E, N, K]`, in the compute dtype, packed in four bits or FP8 codes; products read them
so, or as codes that are made of four bits group by group. The fp32 masters of the adapters are elsewhere; here are
their copies in the compute dtype, B times its scale.

Shapes: T tokens, P = T·k sorted rows, E experts, N outputs and K inputs of an expert, R rank of an expert's adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.models.decoder.stacked_linear import AdaptedRows
from burnish_kernels.eight_bit_linear.op import quantize_rows
from burnish_kernels.grouped_codes.op import CodedExperts, ExpertWeight, grouped_codes
from burnish_kernels.grouped_linear.op import grouped_linear
from burnish_kernels.grouped_linear.tiles import Storage, unpacking_pays
from burnish_kernels.grouped_skinny import op as grouped_skinny
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Packed


@dataclass
class ExpertAdapters:
    """The adapters of one map of all experts.

    Attributes:
        a_ERK: compute copies of A.
        sb_ENR: compute copies of B, times the scale.
        scale: factor of B·A·x.
        gradient_a: fp32 view `[E, R, K]` that accumulates A's gradients; None: not trained.
        gradient_b: fp32 view `[E, N, R]` that accumulates B's gradients; None: not trained.
    """

    a_ERK: torch.Tensor
    sb_ENR: torch.Tensor
    scale: float
    gradient_a: torch.Tensor | None = None
    gradient_b: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        """Rank of an expert's adapter."""
        return self.a_ERK.shape[1]


@dataclass(frozen=True)
class ExpertCodes:
    """Scales and memory of products in FP8 with one map of all experts.

    Attributes:
        scale_E: scale of each expert's codes, fp32.
        scratch: memory for the codes of a group of experts, shared with other maps; None: on a processor.
    """

    scale_E: torch.Tensor
    scratch: torch.Tensor | None


class ExpertLinear:
    """One linear map of all experts.

    Args:
        weight: frozen weights `[E, N, K]` of the compute dtype, packed ones, or codes, with `codes`.
        adapters: adapters of the experts, or None.
        bias_EN: bias of each expert in the compute dtype, or None.
        scratch: memory of the compute dtype, one-dimensional, to unpack groups of packed experts into; it may be shared
            with other maps. None: packed weights are always decoded within the product.
        codes: scales and memory of products in FP8; None: products are in the compute dtype.
        rows: tokens that the adapters take part in; None: all.
    """

    def __init__(
        self,
        weight: ExpertWeight,
        adapters: ExpertAdapters | None = None,
        bias_EN: torch.Tensor | None = None,
        scratch: torch.Tensor | None = None,
        codes: ExpertCodes | None = None,
        rows: AdaptedRows | None = None,
    ) -> None:
        self.weight, self.adapters, self.bias_EN, self.scratch = weight, adapters, bias_EN, scratch
        self.codes, self._rows = codes, rows

    @property
    def experts(self) -> int:
        """Number of experts, E."""
        return self.weight.shape[0] if isinstance(self.weight, torch.Tensor) else self.weight.experts

    @property
    def outputs(self) -> int:
        """Number of output features of an expert, N."""
        return int(self.weight.shape[-2])

    @property
    def inputs(self) -> int:
        """Number of input features of an expert, K."""
        return int(self.weight.shape[-1])

    @property
    def rank(self) -> int:
        """Rank of an expert's adapter, R; 0 where there is none."""
        return self.adapters.rank if self.adapters else 0

    def frozen(self) -> ExpertLinear:
        """Return the same map without its adapters."""
        return ExpertLinear(self.weight, None, self.bias_EN, self.scratch, self.codes)

    def for_rows(self, rows: AdaptedRows) -> ExpertLinear:
        """Return the same map with its adapters for some tokens only."""
        return ExpertLinear(self.weight, self.adapters, self.bias_EN, self.scratch, self.codes, rows)

    def forward(
        self,
        x: torch.Tensor,
        order: ExpertOrder,
        *,
        by_token: bool,
        out: torch.Tensor | None = None,
        xa_out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute the map's output, and the adapters' share of its input.

        Args:
            x: input `[T, K]` with `by_token`, else `[P, K]` in sorted order.
            order: rows by expert.
            by_token: whether x has a row for each token.
            out: tensor `[P, N]` to write the output to. Allocated if None.
            xa_out: tensor `[P, R]` to write XAᵀ to. Allocated if None.

        Returns:
            The output `[P, N]`, and XAᵀ `[P, R]`; None without adapters.
        """
        own, xa_PR = self.adapters, None
        if own is not None:
            xa_PR = grouped_skinny.project(x, own.a_ERK, order, by_token=by_token, out=xa_out)
            if self._rows is not None:
                AdaptedRows(self._rows.keep_T1[order.order // order.slots]).keep(xa_PR)
        sb_ENR = None if own is None else own.sb_ENR
        y_PN = self._product(x, order, xa_PR, sb_ENR, by_token=by_token, transposed=False, out=out)
        return y_PN, xa_PR

    def input_gradient(
        self, dy: torch.Tensor, order: ExpertOrder, *, by_token: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute the gradient of the input.

        Args:
            dy: gradient of the output `[T, N]` with `by_token`, else `[P, N]`.
            order: rows by expert.
            by_token: whether dy has a row for each token: the gradient of a sum over experts, without their weights.

        Returns:
            The gradient `[P, K]`, and dY·sB `[P, R]`; None without adapters.
        """
        own, dyb_PR, turned_EKR = self.adapters, None, None
        if own is not None:
            dyb_PR = grouped_skinny.project(dy, own.sb_ENR.transpose(1, 2), order, by_token=by_token)
            turned_EKR = own.a_ERK.transpose(1, 2)
        return self._product(dy, order, dyb_PR, turned_EKR, by_token=by_token, transposed=True, out=None), dyb_PR

    def accumulate_a(
        self,
        dyb_PR: torch.Tensor | None,
        x: torch.Tensor,
        order: ExpertOrder,
        *,
        by_token: bool,
        weights_Tk: torch.Tensor | None = None,
    ) -> None:
        """Add the gradients of A; nothing without adapters.

        Args:
            dyb_PR: dY·sB from `input_gradient`.
            x: input, as in `forward`.
            order: rows by expert.
            by_token: whether x has a row for each token.
            weights_Tk: routing weights that dY lacks; None: none.
        """
        if self.adapters is None or dyb_PR is None or self.adapters.gradient_a is None:
            return
        gradient_ERK = self.adapters.gradient_a
        grouped_skinny.outer_accumulate(dyb_PR, x, order, gradient_ERK, by_token=by_token, weights_Tk=weights_Tk)

    def accumulate_b(
        self,
        xa_PR: torch.Tensor | None,
        dy: torch.Tensor,
        order: ExpertOrder,
        *,
        by_token: bool,
        weights_Tk: torch.Tensor | None = None,
    ) -> None:
        """Add the gradients of B; nothing without adapters.

        Args:
            xa_PR: XAᵀ from `forward`.
            dy: gradient of the output, as in `input_gradient`.
            order: rows by expert.
            by_token: whether dy has a row for each token.
            weights_Tk: routing weights that dY lacks; None: none.
        """
        if self.adapters is None or xa_PR is None or self.adapters.gradient_b is None:
            return
        gradient_ERN, scale = self.adapters.gradient_b.transpose(1, 2), self.adapters.scale
        grouped_skinny.outer_accumulate(
            xa_PR, dy, order, gradient_ERN, by_token=by_token, scale=scale, weights_Tk=weights_Tk
        )

    def _product(
        self,
        x: torch.Tensor,
        order: ExpertOrder,
        narrow_PR: torch.Tensor | None,
        adapter_ENR: torch.Tensor | None,
        *,
        by_token: bool,
        transposed: bool,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        given: dict[str, Any] = {
            "by_token": by_token,
            "transposed": transposed,
            "narrow_PR": narrow_PR,
            "adapter_ENR": adapter_ENR,
            "bias_EN": None if transposed else self.bias_EN,
            "out": out,
        }
        if self.codes is not None:  # whatever the number of rows: a plan of other chunks must give the same bits
            scale_E, scratch = self.codes.scale_E, self.codes.scratch
            return grouped_codes(quantize_rows(x), self.weight, scale_E, order, **given, dtype=x.dtype, scratch=scratch)
        assert not isinstance(self.weight, CodedExperts)
        return grouped_linear(x, self.weight, order, **given, scratch_GNK=self._scratch_for(order, x))

    def _scratch_for(self, order: ExpertOrder, x: torch.Tensor) -> torch.Tensor | None:
        """Return memory to unpack groups of experts into; None where decoding within the product is faster."""
        if self.scratch is None or isinstance(self.weight, (torch.Tensor, CodedExperts)):
            return None
        if not unpacking_pays(storage_of(self.weight), order.positions / order.experts, x.device):
            return None
        size = self.outputs * self.inputs
        count = min(len(self.scratch) // size, self.experts)
        return self.scratch[: count * size].view(count, self.outputs, self.inputs) if count else None


def storage_of(weight: Packed) -> Storage:
    """Return the form of packed weights."""
    return "mxfp4" if isinstance(weight, Mxfp4Experts) else "nf4"
