"""Plans how to get llama-cpp-python: from a release of Burnish, from pip's cache, prebuilt, or compiled here."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Set
from pathlib import Path

# GGML_NATIVE off: the build runs on any machine of this architecture, also from pip's cache in a shared home folder.
# LLAVA_BUILD and llama.cpp's common library off: Burnish loads neither, and they are half of the compile time.
# CMAKE_PLATFORM_NO_VERSIONED_SONAME: a wheel holds no links, so each name of a library would be a copy.
_LIBRARIES_ONLY = Path(__file__).with_name("libraries_only.cmake").as_posix()
DEFAULT_CMAKE_ARGS = shlex.join(
    [
        "-DGGML_NATIVE=OFF",
        "-DLLAVA_BUILD=OFF",
        "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
        f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={_LIBRARIES_ONLY}",
    ]
)


def plan(
    *, installed: str, wanted: str, own_cmake_args: bool, cached_wheel: str, own_index: bool, release: bool = False
) -> tuple[str, ...]:
    """The ways to try, in order: `release`, `cache`, `prebuilt`, `compile`; none when the wanted version is installed.

    Args:
        installed: installed version; empty: none.
        wanted: wanted version.
        own_cmake_args: whether the user set CMAKE_ARGS: then only a fresh compile gives what was asked for.
        cached_wheel: wheel of that version in pip's cache; empty: none.
        own_index: whether the user named an index with prebuilt wheels, which comes first and replaces the cache.
        release: whether there is a release to take a wheel from.
    """
    if installed == wanted:
        return ()
    if own_cmake_args:
        return ("compile",)
    released = ("release",) if release else ()
    if own_index:
        return ("prebuilt", *released, "compile")
    return (*released, *(("cache",) if cached_wheel else ()), "prebuilt", "compile")


def cached_wheel(listing: str, version: str, sources: Set[str]) -> str:
    """A wheel of that version that pip compiled from a known source and kept in its cache; empty: there is none.

    Args:
        listing: output of `pip cache list --format=abspath`.
        version: wanted version.
        sources: SHA-256 of each source archive that may be taken; pip notes beside a wheel which one it was made of.
    """
    pattern = re.compile(rf"llama_cpp_python-{re.escape(version)}-[^/\\]*\.whl$")
    wheels = [line.strip() for line in listing.splitlines() if pattern.search(line.strip())]
    return next((wheel for wheel in wheels if _source_of(Path(wheel)) in sources), "")


def _source_of(wheel: Path) -> str:
    try:
        origin = json.loads(wheel.with_name("origin.json").read_text(encoding="utf-8"))
        return str(origin["archive_info"]["hashes"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def compile_env(env: Mapping[str, str], cores: int, tools: Path) -> dict[str, str]:
    """The environment for compiling. The user's own CMAKE_ARGS and parallelism win.

    Args:
        env: environment of the process.
        cores: processes that compile at the same time.
        tools: folder that the build tools were installed into.
    """
    usual = {"CMAKE_ARGS": DEFAULT_CMAKE_ARGS, "CMAKE_BUILD_PARALLEL_LEVEL": str(cores)}
    path = os.pathsep.join([str(tools / "bin"), *([env["PATH"]] if env.get("PATH") else [])])
    return usual | dict(env) | {"PYTHONPATH": str(tools), "PATH": path}


def installed_version(site: Path) -> str:
    """The installed version of llama-cpp-python, from the name of its metadata folder; empty when there is none."""
    names = [path.name for path in site.glob("llama_cpp_python-*.dist-info")]
    return names[0].split("-")[1].removesuffix(".dist") if names else ""
