"""Sets Burnish up on this machine and starts it.

    python packaging/bootstrap.py run [ARGS]     set up what is missing, then `burnish ARGS` (none: its help)
    python packaging/bootstrap.py test [ARGS]    set up with the developers' tools, then linters and quick tests
    python packaging/bootstrap.py setup          only set up

It needs nothing but Python's own library, and everything it installs goes into `.venv` beside this folder. A second
start finds a stamp in there and goes straight on. `test` without ARGS runs ruff, mypy and the quick tests, with
`--all` all tests that need no GPU; other ARGS go to pytest, and the linters are left out. Environment variables:

    BURNISH_TORCH_INDEX   where torch comes from: the address under which cu130/, cu126/ and cpu/ lie, or a complete one
    BURNISH_RELEASE       folder or address of a release, to take llama.cpp's wheel from; dist/ if that is there
    BURNISH_LLAMA_INDEX   an index with prebuilt wheels of llama-cpp-python
    BURNISH_WHEELHOUSE    a folder of wheels to look into as well
    BURNISH_ALLOW_CPU     1: continue without the GPU where it cannot be used
    CMAKE_ARGS            your own options for compiling llama.cpp

pip's own variables and configuration files keep working.
"""

import sys
from pathlib import Path

# This file alone is read by whatever Python the launcher found, so it is written in the language of Python 3.6.
MIN_PYTHON = (3, 11)
EXIT_ENVIRONMENT = 12


def main() -> int:
    """Refuse an old Python in words; hand everything else to `setup_commands`."""
    if sys.version_info < MIN_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(
            f"Burnish needs Python 3.11 or newer, and this is {found} ({sys.executable}). Install a newer one "
            "beside it (Debian, Ubuntu: python3 python3-venv; Fedora: python3.13; Windows: the installer from "
            "python.org) and start "
            "again.\n"
        )
        return EXIT_ENVIRONMENT
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "engine"))
    from setup_commands import main as carry_out

    return carry_out(sys.argv[1:], __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
