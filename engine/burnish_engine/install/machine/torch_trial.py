"""Tries, inside the virtual environment, whether torch, Triton and llama.cpp load and the GPU computes.

Prints one JSON document and exits 0 whatever it finds; the bootstrap judges. Nothing but a computed result counts as
"works": a GPU can be visible to torch and still have no kernel image in the installed build.
"""

from __future__ import annotations

import json
from typing import Any

_SIZE = 128


def _try_torch(report: dict[str, Any], *, gpu: bool) -> None:
    try:
        import torch

        report["torch"], report["cuda"] = torch.__version__, torch.version.cuda
    except Exception as error:  # noqa: BLE001
        report["torch_error"] = _flat(error)
        return
    if not gpu:
        return
    try:
        x = torch.full((_SIZE, _SIZE), 2.0, device="cuda")
        report["gpu_works"] = bool((x @ x).sum().item() == 4.0 * _SIZE**3)
        report["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as error:  # noqa: BLE001
        report["gpu_error"] = _flat(error)


def _try_triton(report: dict[str, Any]) -> None:
    try:
        import torch

        from burnish_engine.install.machine import trial_kernel

        x = torch.arange(_SIZE, device="cuda", dtype=torch.float32)
        trial_kernel.double[(1,)](x, SIZE=_SIZE)
        if x.sum().item() != _SIZE * (_SIZE - 1):
            report["triton_error"] = "a kernel ran and gave a wrong result"
    except Exception as error:  # noqa: BLE001
        report["triton_error"] = _flat(error)


def _try_llama(report: dict[str, Any]) -> None:
    try:
        import llama_cpp

        report["llama_cpp"] = llama_cpp.__version__
        llama_cpp.llama_backend_init()
    except Exception as error:  # noqa: BLE001
        report["llama_cpp_error"] = _flat(error)


def _try_burnish(report: dict[str, Any]) -> None:
    try:
        import burnish_engine
        import burnish_kernels

        report["burnish"] = [burnish_engine.__file__, burnish_kernels.__file__]
    except Exception as error:  # noqa: BLE001
        report["burnish_error"] = _flat(error)


def _flat(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def trial(*, gpu: bool) -> dict[str, Any]:
    """Try every part; the report holds versions, `gpu_works` and one `*_error` for each part that failed."""
    report: dict[str, Any] = {}
    _try_torch(report, gpu=gpu)
    if report.get("gpu_works"):
        _try_triton(report)
    _try_llama(report)
    _try_burnish(report)
    return report


if __name__ == "__main__":
    import sys

    sys.stdout.write(json.dumps(trial(gpu="--gpu" in sys.argv)) + "\n")
