"""Launches that begin while the one before still runs, so that a chain of short kernels does not wait for each launch.

CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; compute capability 9.0 and newer. Only
launches on few tokens that are captured into a graph overlap: no weight changes there, so that a kernel may read
weights before it waits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

MOST_ROWS = 128
"""Most tokens of a launch that overlaps others: longer kernels hide the launch of the next one anyway."""
CAPABILITIES = (90, 120)
"""Compute capabilities, of those that kernels are compiled for, on which launches overlap."""


@triton.jit
def let_next_begin(OVERLAPS: tl.constexpr):
    """Let the next launch begin once all programs of this one have."""
    if OVERLAPS:
        gdc_launch_dependents()


@triton.jit
def wait_for_earlier(OVERLAPS: tl.constexpr):
    """Wait until all launches before this one have ended; nothing that they write is read before."""
    if OVERLAPS:
        gdc_wait()


def launch_options(tensor: torch.Tensor, rows: int) -> dict[str, Any]:
    """Return the argument OVERLAPS of a kernel, and the launch's option that it needs.

    Args:
        tensor: tensor that the kernel reads.
        rows: number of tokens.
    """
    overlaps = (
        rows <= MOST_ROWS
        and tensor.is_cuda
        and torch.cuda.get_device_capability(tensor.device) >= (9, 0)
        and torch.cuda.is_current_stream_capturing()
    )
    return {"OVERLAPS": True, "launch_pdl": True} if overlaps else {"OVERLAPS": False}
