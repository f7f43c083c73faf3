"""The lock holds every dependency in a version that the project accepts, with the hashes of its files."""

import re
import tomllib
from pathlib import Path

import pytest
import write_lock
from locked import Pin, normalized, parse_pins, read_pins
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from burnish_engine.install.machine import choose_builds

ROOT = Path(__file__).resolve().parents[2]

LOCK = ROOT / "packaging" / "lock"
FILES = sorted(path for path in LOCK.glob("*.txt") if not path.name.endswith("-files.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
USERS = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"], *EXTRAS["window"], "editables"]
WHERE = {**dict.fromkeys(USERS, "packages"), **dict.fromkeys(EXTRAS["dev"], "developers")}
WHERE |= {**dict.fromkeys(EXTRAS["llama"], "llama"), **dict.fromkeys(EXTRAS["demo"], "model")}
WHERE |= dict.fromkeys(EXTRAS["hybrid"], "hybrid")
WHERE |= dict.fromkeys(write_lock.FREEZING, "window")


def _pins(name: str) -> dict[str, Pin]:
    return {pin.key: pin for pin in read_pins(LOCK / f"{name}.txt")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_exact_sorted_pins_each_with_hashes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    pins = parse_pins(text)
    assert "".join(pin.text() for pin in pins) == text, "packaging/write_lock.py writes it otherwise"
    assert [pin.key for pin in pins] == sorted({pin.key for pin in pins})
    assert [pin.name for pin in pins if not pin.hashes] == []


@pytest.mark.parametrize("text", WHERE)
def test_every_requirement_is_pinned_within_its_range(text: str) -> None:
    requirement = Requirement(text)
    name = normalized(requirement.name)
    pins = _pins(WHERE[text])
    assert name in pins, f"{name} is not in packaging/lock/{WHERE[text]}.txt: run packaging/write_lock.py"
    assert requirement.specifier.contains(pins[name].version), f"{pins[name].version} does not satisfy {text}"


def test_the_chosen_builds_are_the_locked_ones() -> None:
    pins = {**_pins("packages"), **_pins("llama")}
    assert {name: pins[name].version for name in write_lock.CHOSEN} == write_lock.CHOSEN


def test_the_frozen_window_has_what_the_set_up_installs() -> None:
    every, window = {**_pins("packages"), **_pins("developers")}, _pins("window")
    kept = [*write_lock.FROZEN, *(Requirement(text).name for text in EXTRAS["window"])]
    assert {normalized(name) for name in kept} <= set(window)
    assert {name: pin.version for name, pin in window.items() if name in every and pin != every[name]} == {}


def test_only_chosen_builds_have_libraries_of_their_own() -> None:
    tags = {path.stem for path in LOCK.glob("cu*.txt")}
    assert tags <= {line.tag for line in choose_builds.CUDA_LINES}
    assert all(pin.name.startswith(("nvidia-", "cuda-")) for tag in tags for pin in _pins(tag).values())


def test_the_list_of_torchs_own_files_is_of_the_chosen_version() -> None:
    lines = [line.split("  ") for line in (LOCK / "torch-files.txt").read_text(encoding="utf-8").splitlines()]
    builds = {"cpu", *(line.tag for line in choose_builds.CUDA_LINES)}
    for digest, name in lines:
        assert re.fullmatch(r"[0-9a-f]{64}", digest)
        version = parse_wheel_filename(name)[1]
        assert version.public == choose_builds.TORCH_VERSION
        assert version.local in builds
    names = [name for _, name in lines]
    assert names == sorted(set(names))


def test_each_package_goes_to_the_file_of_those_who_need_it() -> None:
    every = [Pin(name, "1", hashes=("0" * 64,)) for name in ("pytest", "nvidia-nccl-cu13", "nvidia-ml-py", "A_c", "b")]
    every.append(Pin("llama_cpp_python", "2"))
    files = write_lock.lock_files(
        every, {"a-c", "b", "nvidia-ml-py"}, {"release": [Pin("ninja", "3")], "model": [Pin("m", "4")]}
    )
    names = {kind: [pin.name for pin in parse_pins(text)] for kind, text in files.items()}
    assert names == {
        "packages": ["A_c", "b", "nvidia-ml-py"],
        "developers": ["pytest"],
        "cu130": ["nvidia-nccl-cu13"],
        "llama": ["llama_cpp_python"],
        "release": ["ninja"],
        "model": ["m"],
    }


@pytest.mark.parametrize(
    ("marker", "kept"),
    [
        ("", ""),
        ("sys_platform != 'emscripten'", ""),
        ("sys_platform == 'linux'", "sys_platform == 'linux'"),
        ("python_full_version < '3.12'", "python_full_version < '3.12'"),
        ("sys_platform == 'emscripten'", None),
    ],
)
def test_a_marker_stays_where_it_tells_our_machines_apart(marker: str, kept: str | None) -> None:
    assert write_lock.plain_marker(marker) == kept
