"""Checks before and after installing, and what to tell a person when one fails."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

USAGE = 2
ENVIRONMENT = 12  # Burnish's exit codes (burnish_engine.contract.errors); this code runs before that package is there
NO_SPACE = 15
STOPPED = 20

GB = 10**9
# Measured on Linux x86-64, Python 3.11, torch 2.13.0. CPU: .venv 2.9 GB, of it torch 0.75 and Triton 1.0; downloads
# 0.9 GB. CUDA 13.0: torch, Triton and NVIDIA's 18 libraries are 2.73 GB of wheels and 4.72 GB unpacked, the rest is
# 1.2 GB; Windows' CUDA wheel carries the same libraries. Rounded up for bytecode and llama.cpp's build folder.
SPACE_NEEDED = {"cpu": (int(3.7 * GB), int(1.6 * GB)), "cuda": (int(7.5 * GB), int(3.7 * GB))}


class SetupProblem(Exception):  # noqa: N818 - it tells a person, it is no programming error
    """A set-up that cannot continue.

    Args:
        message: paragraph: what happened, the value found, what to do.
        exit_code: exit code of the process.
    """

    def __init__(self, message: str, exit_code: int = ENVIRONMENT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class DiskNeed:
    """A folder that set-up writes to.

    Attributes:
        purpose: use of the folder, in words.
        path: path of the folder.
        device: number of its file system; folders on one file system share its free space.
        free_bytes: free space there.
        needed_bytes: bytes that set-up writes there.
    """

    purpose: str
    path: Path
    device: int
    free_bytes: int
    needed_bytes: int


def check_space(needs: Sequence[DiskNeed]) -> None:
    """Check that every file system has room for all that goes there.

    Raises:
        SetupProblem: There is too little space (exit code 15); the message names what is needed and what is free.
    """
    for device in dict.fromkeys(place.device for place in needs):
        here = [place for place in needs if place.device == device]
        needed, free = sum(place.needed_bytes for place in here), min(place.free_bytes for place in here)
        if free >= needed:
            continue
        what = " and ".join(f"{place.purpose} ({place.path})" for place in here)
        move = (
            "" if any(place.purpose == "packages" for place in here) else ", or set TMPDIR to a folder with more room"
        )
        raise SetupProblem(
            f"Not enough disk space for {what}: about {needed / GB:.1f} GB are needed and {free / GB:.1f} GB "
            f"are free. Free some space{move} and start again.",
            NO_SPACE,
        )


def compiler_problem(env: Mapping[str, str]) -> str:
    """The paragraph for a machine that must compile llama.cpp and has no C++ compiler."""
    if sys.platform == "win32":
        install = 'Visual Studio\'s Build Tools with the workload "Desktop development with C++"'
    else:
        install = "one (Debian, Ubuntu: build-essential; Fedora: gcc-c++)"
    named = " (the index in BURNISH_LLAMA_INDEX has none either)" if env.get("BURNISH_LLAMA_INDEX") else ""
    return (
        f"llama-cpp-python, which checks exported models, has no prebuilt wheel for this machine{named}, and no "
        f"C++ compiler was found to build it. Set BURNISH_RELEASE to the folder or address of a release of Burnish, "
        f"which has a wheel, or install {install}, and start again."
    )


def pip_problem(doing: str, log_tail: str, log: Path) -> SetupProblem:
    """The problem to raise when a pip call failed: its likely cause, read from the end of its log.

    Args:
        doing: phrase for the work that failed, such as "installing packages".
        log_tail: last lines of pip's output.
        log: file with all of it.
    """
    code = ENVIRONMENT
    reason = f"{doing[0].upper()}{doing[1:]} failed"
    if re.search(r"No space left on device|Errno 28|WinError 112|not enough space", log_tail):
        code = NO_SPACE
        remedy = "The disk is full. Free some space (or set TMPDIR to a folder with more room) and start again."
    elif re.search(
        r"name resolution|getaddrinfo|Connection|ProxyError|timed out|SSLError|Max retries|503|502", log_tail
    ):
        remedy = (
            "The package index could not be reached. Check the network (and HTTPS_PROXY, PIP_INDEX_URL or "
            "PIP_CERT if your network needs them), then start again: finished downloads are kept."
        )
    elif re.search(r"No matching distribution|Could not find a version|ResolutionImpossible", log_tail):
        # A missing version that is also locked is told by pip as a conflict of the two.
        wanted = re.search(r"(?:No matching distribution found for|Cannot install) (\S+)", log_tail)
        remedy = (
            f"The index has no build of {wanted[1] if wanted else 'a package'} for this Python and system. Set "
            "BURNISH_TORCH_INDEX or BURNISH_LLAMA_INDEX to an index that has it, or BURNISH_WHEELHOUSE to a "
            "folder with the wheel; a Python between 3.11 and 3.13 has the most builds."
        )
    elif re.search(r"DO NOT MATCH THE HASHES|Hashes are required in --require-hashes", log_tail):
        remedy = (
            "A file is not the one that Burnish was released with: the lines above name it. Start again without "
            "indexes of your own, or remove it from pip's cache (pip cache purge). If you built it yourself and trust "
            "it, put it into a folder of wheels and name that in BURNISH_WHEELHOUSE."
        )
    elif re.search(r"CMake Error|CMake configuration failed|ninja: build stopped|fatal error:", log_tail):
        remedy = "The compiler could not build it: the lines above say why. A complete C and C++ tool chain is needed."
    else:
        remedy = "The lines above name the reason; start again once it is gone."
    return SetupProblem(f"{reason}. {remedy} The whole log is {log}.", code)


def trial_problem(
    trial: Mapping[str, object],
    *,
    wants_gpu: bool,
    must_run_triton: bool,
    env: Mapping[str, str],
    remake: str = "Start again with the folder .venv removed",
) -> str:
    """Describe what is wrong after installing, from the report of `torch_trial.py`; empty when all is well.

    Args:
        trial: report of `torch_trial.py`.
        wants_gpu: whether a build for the GPU was chosen.
        must_run_triton: whether the GPU is new enough for Burnish's kernels.
        env: environment of the process.
        remake: advice how to make the environment again.
    """
    for part in ("torch", "llama_cpp", "burnish", *(("triton",) if wants_gpu else ())):
        if trial.get(f"{part}_error") and (part != "triton" or must_run_triton):
            return (
                f"{part} was installed but does not work: {trial[f'{part}_error']}. {remake}; "
                "if it stays, run `burnish doctor` and report what it says."
            )
    if not wants_gpu or trial.get("gpu_works"):
        return ""
    found = f"torch {trial.get('torch')}, CUDA {trial.get('cuda') or 'none: a CPU build'}"
    if not trial.get("cuda"):
        remedy = (
            "pip took a CPU build from the index or folder that it is set up with. Set BURNISH_TORCH_INDEX to an "
            'index with the CUDA build (PyTorch\'s "Get started" page shows the address) and start again.'
        )
    elif env.get("CUDA_VISIBLE_DEVICES") is not None:
        remedy = f"CUDA_VISIBLE_DEVICES is set to {env['CUDA_VISIBLE_DEVICES']!r}, which may hide the GPU: unset it."
    else:
        remedy = (
            "Restart the machine if the driver was updated since the last start; otherwise install driver 580 or newer."
        )
    return (
        f"The GPU is there, but torch cannot use it ({found}): {trial.get('gpu_error') or 'no GPU visible'}. "
        f"{remedy} To continue without the GPU, set BURNISH_ALLOW_CPU=1."
    )
