"""A C or C++ compiler for another machine: zig's, called with the options that CMake and ggml write for GCC.

    python zig_compiler.py (cc|c++) TARGET [OPTIONS]

Source: zig names processors by its own table and takes no `-march=armv8.2-a+fp16` (`zig targets`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

_ARM_ARCHITECTURE = re.compile(r"-march=armv(\d)(?:\.(\d))?-a(.*)")
_ARM_FEATURES = {"fp16": "fullfp16"}


def translated(option: str) -> str:
    """The option as zig understands it: `-march=armv8.2-a+fp16` gives `-mcpu=generic+v8_2a+fullfp16`."""
    found = _ARM_ARCHITECTURE.fullmatch(option)
    if not found:
        return option
    major, minor, features = found.groups()
    names = [_ARM_FEATURES.get(name, name) for name in features.split("+") if name]
    return "+".join([f"-mcpu=generic+v{major}{f'_{minor}' if minor else ''}a", *names])


def zig() -> str:
    """The path of the zig program that its package holds."""
    return str(Path(str(distribution("ziglang").locate_file("ziglang"))) / ("zig.exe" if os.name == "nt" else "zig"))


def main(arguments: Sequence[str]) -> None:
    """Become the compiler."""
    language, target, *options = arguments
    command = [zig(), language, "-target", target, *map(translated, options)]
    os.execv(command[0], command)  # noqa: S606 - a list, and no shell


if __name__ == "__main__":
    main(sys.argv[1:])
