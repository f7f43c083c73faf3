"""Where an operation runs: its Triton kernel or its PyTorch reference."""

from __future__ import annotations

import os

import torch


def use_kernels(tensor: torch.Tensor) -> bool:
    """Whether the operation on this tensor is done by Triton: on CUDA, and anywhere in Triton's interpreter."""
    return tensor.is_cuda or interpreted()


def interpreted() -> bool:
    """Whether Triton interprets kernels on the processor instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"
