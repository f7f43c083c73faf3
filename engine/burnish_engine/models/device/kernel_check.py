"""Check real kernels on the real device against their references, as a process of the doctor. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from burnish_kernels.registry import MXFP8_CAPABILITIES, ops
from burnish_kernels.tuning import device_of

CAPABILITIES_OF = {"mxfp8_linear": MXFP8_CAPABILITIES}
"""Compute capabilities of operations that training does not use on other GPUs, where they may fail."""


def check(name: str, action: Callable[[], float], tolerance: float) -> dict[str, object]:
    """Run one kernel and compare its result; never raise."""
    began = time.perf_counter()
    try:
        error = action()
    except Exception as problem:  # noqa: BLE001  whatever a driver or compiler throws is the finding
        return {"name": name, "passed": False, "detail": f"{type(problem).__name__}: {problem}"[:500]}
    seconds = time.perf_counter() - began
    return {
        "name": name,
        "passed": error <= tolerance,
        "detail": f"relative error {error:.1e} in {seconds:.1f} s" + ("" if error <= tolerance else f" > {tolerance}"),
    }


def _matmul(device: str) -> float:
    left, right = torch.randn(256, 512), torch.randn(512, 128)
    exact = left.double() @ right.double()
    result = (left.to(device) @ right.to(device)).cpu().double()
    return float((result - exact).norm() / exact.norm())


def _triton(name: str) -> float:
    op = ops()[name]
    case = op.cases()[0]
    return op.compare(case, "cuda")


def main() -> None:
    """Run the checks that fit the device."""
    gpu = "--gpu" in sys.argv[1:]
    results = [check("matrix product (CPU)", lambda: _matmul("cpu"), 1e-5)]
    if gpu:
        # At least one, so that a torch that sees no GPU fails here and says why.
        for index in range(max(1, torch.cuda.device_count())):
            name = f"matrix product (GPU {index}, CUDA {torch.version.cuda})"
            results.append(check(name, lambda device=f"cuda:{index}": _matmul(device), 1e-2))  # type: ignore[misc]
        device = device_of(None)
        for name in ops():
            if device is None or device.capability in CAPABILITIES_OF.get(name, (device.capability,)):
                results.append(check(f"{name} (Triton)", partial(_triton, name), 1e-2))
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
