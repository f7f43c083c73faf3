"""No file of the repository names a package registry's host or a path of the machine it was written on."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Put together here, so that this file does not hold what it forbids.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("pypi", "nvidia", "com"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("jsdelivr", "net"),
        ("unpkg", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("proxy", "golang", "org"),
        ("ghcr", "io"),
        ("docker", "io"),
    )
]


@cache
def _files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file() and not path.is_symlink()]


def _lines_with(pattern: str) -> list[str]:
    found = []
    for path in _files():
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue  # an image or another binary file
        for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


@pytest.mark.full
def test_no_registry_is_named() -> None:
    assert _lines_with(r"\b(" + "|".join(re.escape(host) for host in HOSTS) + r")\b") == []


@pytest.mark.full
def test_no_path_of_this_machine_is_named() -> None:
    places = [
        path for path in {str(ROOT), str(Path.home())} if path.count("/") + path.count("\\") > 0 and len(path) > 1
    ]
    assert _lines_with(r"(?<![\w.])(" + "|".join(re.escape(place) for place in places) + r")[/\\]") == []
