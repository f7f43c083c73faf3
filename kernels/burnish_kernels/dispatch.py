"""Decide whether an operation runs its Triton kernel or its PyTorch reference; what interpreter and GPU are like."""

from __future__ import annotations

import functools
import os

import torch


def use_kernels(tensor: torch.Tensor) -> bool:
    """Return whether Triton does the operation on this tensor: on CUDA, and anywhere in Triton's interpreter."""
    return tensor.is_cuda or interpreted()


def interpreted() -> bool:
    """Return whether Triton interprets kernels on the processor instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return the number of a GPU's multiprocessors; elsewhere one that gives a program several tiles."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round fp32 as kernels do: to nearest, but Triton's interpreter cuts bf16 off."""
    if dtype != torch.bfloat16 or not interpreted():
        return values.to(dtype)
    return (values.view(torch.int32) & -65536).view(torch.float32).to(dtype)
