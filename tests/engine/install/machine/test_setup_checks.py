"""Disk space from injected numbers, and the words for what can go wrong."""

from pathlib import Path

import pytest

from burnish_engine.install.machine.setup_checks import (
    ENVIRONMENT,
    GB,
    NO_SPACE,
    SPACE_NEEDED,
    DiskNeed,
    SetupProblem,
    check_space,
    compiler_problem,
    pip_problem,
    trial_problem,
)

LOG = Path("setup.log")
GOOD = {"torch": "2.13.0", "cuda": "13.0", "gpu_works": True, "llama_cpp": "0.3.36"}


def _needs(free_packages: float, free_downloads: float, *, one_disk: bool) -> list[DiskNeed]:
    return [
        DiskNeed("packages", Path("p"), 1, int(free_packages * GB), 7 * GB),
        DiskNeed("downloads", Path("d"), 1 if one_disk else 2, int(free_downloads * GB), 3 * GB),
    ]


@pytest.mark.parametrize(
    ("packages", "downloads", "one_disk", "words"),
    [
        (10, 10, True, None),
        (7, 3, False, None),
        (9.9, 9.9, True, ["packages (p) and downloads (d)", "10.0 GB", "9.9 GB"]),
        (6.9, 3, False, ["packages (p)", "7.0 GB", "6.9 GB"]),
        (7, 2, False, ["downloads (d)", "TMPDIR"]),
    ],
)
def test_space(packages: float, downloads: float, one_disk: bool, words: list[str] | None) -> None:
    needs = _needs(packages, downloads, one_disk=one_disk)
    if words is None:
        check_space(needs)
        return
    with pytest.raises(SetupProblem) as problem:
        check_space(needs)
    assert problem.value.exit_code == NO_SPACE
    assert [word for word in words if word not in str(problem.value)] == []


def test_a_cuda_set_up_needs_more_room_than_a_cpu_one() -> None:
    assert all(cuda > cpu for cuda, cpu in zip(SPACE_NEEDED["cuda"], SPACE_NEEDED["cpu"], strict=True))


@pytest.mark.parametrize(
    ("tail", "code", "word"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", NO_SPACE, "disk"),
        ("Temporary failure in name resolution", ENVIRONMENT, "network"),
        ("ERROR: No matching distribution found for torch==2.13.0", ENVIRONMENT, "no build of torch==2.13.0"),
        (
            "ERROR: Cannot install torch==2.13.0 because\nResolutionImpossible: x",
            ENVIRONMENT,
            "build of torch==2.13.0",
        ),
        ("CMake Error at CMakeLists.txt:3", ENVIRONMENT, "compiler"),
        ("something else", ENVIRONMENT, "lines above"),
    ],
)
def test_what_pip_failed_of(tail: str, code: int, word: str) -> None:
    problem = pip_problem("installing packages", tail, LOG)
    assert problem.exit_code == code
    assert word in str(problem)
    assert str(problem).startswith("Installing packages failed.")
    assert "setup.log" in str(problem)


def test_missing_compiler_names_a_package() -> None:
    text = compiler_problem({})
    assert "build-essential" in text or "Build Tools" in text
    assert "BURNISH_RELEASE" in text


def _trial(report: dict, *, gpu: bool = True, triton: bool = True, env: dict | None = None) -> str:
    return trial_problem(report, wants_gpu=gpu, must_run_triton=triton, env=env or {})


def test_a_good_trial() -> None:
    assert _trial(GOOD) == ""
    assert _trial({"torch": "2.13.0+cpu", "cuda": None, "llama_cpp": "0.3.36"}, gpu=False) == ""


def test_a_gpu_that_torch_cannot_use_is_an_error() -> None:
    text = _trial({"torch": "2.13.0+cpu", "cuda": None})
    assert "CPU build" in text
    assert "BURNISH_TORCH_INDEX" in text
    text = _trial({"torch": "2.13.0", "cuda": "13.0", "gpu_error": "RuntimeError: no kernel image"})
    assert "no kernel image" in text
    assert "BURNISH_ALLOW_CPU" in text
    assert "CUDA_VISIBLE_DEVICES" in _trial({"torch": "2.13.0", "cuda": "13.0"}, env={"CUDA_VISIBLE_DEVICES": ""})


def test_broken_parts() -> None:
    assert "llama_cpp was installed but does not work: OSError" in _trial(GOOD | {"llama_cpp_error": "OSError: x"})
    assert "torch was installed" in _trial({"torch_error": "ImportError: x"}, gpu=False)


def test_triton_may_fail_only_on_a_gpu_older_than_our_kernels() -> None:
    broken = GOOD | {"triton_error": "RuntimeError: x"}
    assert "triton was installed" in _trial(broken)
    assert _trial(broken, triton=False) == ""
