"""Time one attention layer on a pack of documents: whole, one kernel alone, and with FlashAttention-2."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from burnish_kernels.attention import op
from burnish_kernels.attention.config import AttentionConfig, KernelConfig
from burnish_kernels.attention.documents import Documents

BENCHMARKED = {  # query heads, key heads, head size
    "qwen3-0.6b": (16, 8, 128),
    "llama-1b": (32, 8, 64),
    "qwen3-4b": (32, 8, 128),
    "qwen2.5-0.5b": (14, 2, 64),
    "gemma-3-4b": (8, 4, 256),
}
BENCHMARKED_ROWS = 16384


def lognormal_lengths(rows: int, seed: int) -> list[int]:
    """Draw lengths of typical documents: median 181, from 16 to 2,048 rows, the last one cut to fit."""
    rng, lengths = np.random.default_rng(seed), [0]
    while sum(lengths) < rows:
        lengths.append(int(np.clip(rng.lognormal(5.2, 0.9), 16, 2048)))
    return [*lengths[1:-1], rows - sum(lengths[:-1])]


class BenchmarkPack:
    """The tensors of one benchmark: a pack of documents and one attention layer's inputs and gradients.

    Args:
        heads: number of query heads.
        kv_heads: number of key heads.
        width: size of a head.
        device: device of the tensors.
        seed: seed of the numbers, and of the lengths where none are given.
        dtype: dtype of the tensors.
        lengths: lengths of the documents, `BENCHMARKED_ROWS` rows in all; None: those of typical documents.
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        width: int,
        device: str,
        *,
        seed: int,
        dtype: torch.dtype,
        lengths: list[int] | None = None,
    ) -> None:
        self.scale = width**-0.5
        self.lengths = lengths or lognormal_lengths(BENCHMARKED_ROWS, seed)
        self.boundaries = np.cumsum([0, *self.lengths])
        self.documents_of: dict[int, Any] = {}
        self.device, self.heads, self.width = device, heads, width
        generator = torch.Generator(device).manual_seed(seed)

        def draw(count: int) -> torch.Tensor:
            return torch.randn(BENCHMARKED_ROWS, count, width, generator=generator, device=device, dtype=dtype)

        qkv = draw(heads + 2 * kv_heads)
        self.q, self.k, self.v = qkv.split([heads, kv_heads, kv_heads], dim=1)
        self.do = draw(heads)
        self.docs = self.documents(op.tile_rows(width, dtype, device))
        self.o, self.lse = op.forward(self.q, self.k, self.v, self.docs, scale=self.scale)
        self.delta = torch.zeros_like(self.lse)
        self.dq, self.dk = torch.empty_like(self.o), torch.empty_like(self.k, memory_format=torch.contiguous_format)
        self.dv = torch.empty_like(self.dk)

    def documents(self, tile_rows: int) -> Any:
        """Return the documents, cut into tiles of this height."""
        if tile_rows not in self.documents_of:
            docs = Documents.from_boundaries(self.boundaries, BENCHMARKED_ROWS, tile_rows, self.device)
            self.documents_of[tile_rows] = docs
        return self.documents_of[tile_rows]

    @property
    def pairs(self) -> int:
        """Count the pairs of a query and a visible key, of all heads."""
        return self.heads * sum(length * (length + 1) // 2 for length in self.lengths)

    def forward(self) -> object:
        """Run the forward pass."""
        return op.forward(self.q, self.k, self.v, self.docs, scale=self.scale, out=self.o)

    def backward(self) -> object:
        """Run the backward pass."""
        return op.backward(
            do_TND=self.do,
            q_TND=self.q,
            k_TMD=self.k,
            v_TMD=self.v,
            o_TND=self.o,
            lse_NT=self.lse,
            docs=self.docs,
            scale=self.scale,
            dq_out=self.dq,
            dk_out=self.dk,
            dv_out=self.dv,
        )

    def launch(self, kernel: str, tile_rows: int, chosen: KernelConfig) -> None:
        """Launch one kernel in a given configuration."""
        from burnish_kernels.attention import launch_kernels as launch

        shared: dict[str, Any] = {
            "q_TND": self.q,
            "k_TMD": self.k,
            "v_TMD": self.v,
            "lse_NT": self.lse,
            "docs": self.documents(tile_rows),
            "scale": self.scale,
            "window": None,
            "softcap": None,
            "config": AttentionConfig(tile_rows, chosen, chosen, chosen),
        }
        if kernel == "forward":
            launch.launch_forward(o_TND=self.o, **shared)
        elif kernel == "dq":
            launch.launch_dq(do_TND=self.do, o_TND=self.o, delta_NT=self.delta, dq_TND=self.dq, **shared)
        else:
            launch.launch_dkdv(do_TND=self.do, delta_NT=self.delta, dk_TMD=self.dk, dv_TMD=self.dv, **shared)

    def results(self, kernel: str) -> list[torch.Tensor]:
        """Return the tensors that a kernel writes."""
        return {"forward": [self.o, self.lse], "dq": [self.dq, self.delta], "dkdv": [self.dk, self.dv]}[kernel]

    def flash(self) -> tuple[Callable[[], object], Callable[[], object]] | None:
        """Return the forward pass, and both passes, by PyTorch's FlashAttention-2; None where it has none."""
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError:
            return None
        edges = torch.tensor(self.boundaries, dtype=torch.int32, device=self.device)
        leaves = [tensor.contiguous().requires_grad_() for tensor in (self.q, self.k, self.v)]
        longest = max(self.lengths)
        # Newer versions want to be told that heads share keys; older ones do not know the word.
        grouped = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}

        def forward() -> torch.Tensor:
            return varlen_attn(*leaves, edges, edges, longest, longest, window_size=(-1, 0), **grouped)

        return forward, lambda: torch.autograd.grad(forward(), leaves, self.do)
