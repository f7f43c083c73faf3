"""Decide whether an operation runs its Triton kernel or its PyTorch reference."""

from __future__ import annotations

import os

import torch


def use_kernels(tensor: torch.Tensor) -> bool:
    """Return whether Triton does the operation on this tensor: on CUDA, and anywhere in Triton's interpreter."""
    return tensor.is_cuda or interpreted()


def interpreted() -> bool:
    """Return whether Triton interprets kernels on the processor instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"
