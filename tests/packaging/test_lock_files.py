"""The lock holds every dependency in a version that the project accepts, and it can be read anywhere."""

import re
import tomllib
from pathlib import Path

import choose_builds
import pytest
import write_lock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

LOCK = ROOT / "packaging" / "lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
REQUIREMENTS = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(requirement for extra in EXTRAS.values() for requirement in extra),
    "editables",
]


def _pins(name: str = "constraints.txt") -> dict[str, str]:
    lines = (LOCK / name).read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(pin): version for pin, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("path", sorted(LOCK.glob("*.txt")), ids=lambda path: path.name)
def test_plain_exact_sorted_lines(path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    assert lines == sorted(lines, key=lambda line: canonicalize_name(line.split("==")[0]))
    assert len({canonicalize_name(line.split("==")[0]) for line in lines}) == len(lines)


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_every_requirement_is_pinned_within_its_range(text: str) -> None:
    requirement = Requirement(text)
    pins = _pins()
    name = canonicalize_name(requirement.name)
    assert name in pins, f"{name} is not in packaging/lock/constraints.txt: run packaging/write_lock.py"
    assert requirement.specifier.contains(pins[name]), f"{pins[name]} does not satisfy {text}"


def test_the_chosen_builds_are_the_locked_ones() -> None:
    pins = _pins()
    assert pins["torch"] == choose_builds.TORCH_VERSION
    assert pins["triton"] == choose_builds.TRITON_VERSION
    assert pins["triton-windows"] == choose_builds.TRITON_WINDOWS_VERSION
    assert pins["llama-cpp-python"] == choose_builds.LLAMA_VERSION


def test_only_chosen_builds_have_a_lock_of_their_own() -> None:
    tags = {path.stem.removeprefix("constraints-") for path in LOCK.glob("constraints-*.txt")}
    assert tags <= {line.tag for line in choose_builds.CUDA_LINES}


def test_writing_the_lock() -> None:
    freeze = (
        "b==2.0+local\n-e /somewhere\n# Editable install with no version control\npip==23\ntorch==2.0+cpu\nA_c==1\n"
    )
    pins = [f"{name}=={version}" for name, version in write_lock.CARRIED.items()]
    assert write_lock.lock_lines(freeze) == ["A_c==1", "b==2.0", *pins]
