"""Knows which libraries a frozen window carries and which are its system's, and checks a frozen folder by that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from binaries import needs

OLDEST_GLIBC = (2, 36)
"""The glibc of Debian 12, the oldest system that the window is for."""
MOST_BYTES = 150_000_000
"""Most bytes of the unpacked window."""
SYSTEM_LIBRARIES = {
    "libc6": r"(libc|libm|libdl|libpthread|librt|libutil|libresolv|ld-linux-[\w-]+)\.so\.\d",
    "libgcc-s1": r"libgcc_s\.so\.1",
    "libstdc++6": r"libstdc\+\+\.so\.6",
    "zlib1g": r"libz\.so\.1",
    "libgl1": r"libGL\.so\.1",
    "libegl1": r"libEGL\.so\.1",
    "libopengl0": r"libOpenGL\.so\.0",
    "libx11-6": r"libX11\.so\.6",
    "libx11-xcb1": r"libX11-xcb\.so\.1",
    "libxcb1": r"libxcb\.so\.1",
    "libxkbcommon0": r"libxkbcommon\.so\.0",
    "libwayland-client0": r"libwayland-client\.so\.0",
    "libwayland-cursor0": r"libwayland-cursor\.so\.0",
    "libwayland-egl1": r"libwayland-egl\.so\.1",
    "libfontconfig1": r"libfontconfig\.so\.1",
    "libfreetype6": r"libfreetype\.so\.6",
    "libglib2.0-0": r"lib(glib|gthread|gobject|gio|gmodule)-2\.0\.so\.0",
    "libdbus-1-3": r"libdbus-1\.so\.3",
    "libgssapi-krb5-2": r"libgssapi_krb5\.so\.2",
}
"""Libraries that every desktop has, and of which two versions in one process would clash: by their Debian package."""
LINUX_ONLY = re.compile(r"\.so(\.|$)")


def is_of_system(library: str) -> bool:
    """Whether a library is the system's, by its file name."""
    return package_of(library) is not None


def package_of(library: str) -> str | None:
    """Debian package of a library that is the system's; None: the window has to carry it."""
    return next((name for name, pattern in SYSTEM_LIBRARIES.items() if re.fullmatch(pattern, library)), None)


def reached(files: Mapping[str, Path]) -> set[str]:
    """File names of the libraries that are used: modules, plugins, and what these are linked to.

    Args:
        files: files by their names within the window's folder.
    """
    by_name = {PurePath(name).name: path for name, path in files.items()}
    shared = {name for name in by_name if re.search(r"\.so\.\d", name) and not name.startswith("libpython")}
    open_names = [name for name in by_name if name not in shared]
    found = set(open_names)
    while open_names:
        asked = needs(by_name[open_names.pop()])
        further = {name for name in (asked.libraries if asked else ()) if name in shared} - found
        found |= further
        open_names += further
    return found


def problems(folder: Path) -> list[str]:
    """List what keeps a frozen folder from being released; empty: nothing does.

    Args:
        folder: frozen window.
    """
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    found = [f"It holds {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}."] if size > MOST_BYTES else []
    carried = {path.name for path in folder.rglob("*")}
    for path in files:
        asked = needs(path)
        if asked is None:
            continue
        if asked.glibc > OLDEST_GLIBC:
            found.append(f"{path.name} needs glibc {asked.glibc[0]}.{asked.glibc[1]}.")
        missing = sorted(
            name for name in asked.libraries - carried if LINUX_ONLY.search(name) and not is_of_system(name)
        )
        if missing:
            found.append(f"{path.name} needs {', '.join(missing)}, and nobody carries it.")
    found += [f"It holds {name}." for name in ("torch", "transformers") if (folder / "_internal" / name).exists()]
    return found


def packages_needed(folder: Path) -> list[str]:
    """Debian packages that a frozen folder needs, the C library with the oldest version that has its symbols."""
    every = [asked for path in folder.rglob("*") if path.is_file() and (asked := needs(path))]
    oldest = max(asked.glibc for asked in every)
    names = {package for asked in every for library in asked.libraries if (package := package_of(library))}
    return [f"libc6 (>= {oldest[0]}.{oldest[1]})", *_alternatives(sorted(names - {"libc6"}))]


def _alternatives(packages: Iterable[str]) -> list[str]:
    """Debian 13 renamed what counts time in 64 bits."""
    return [f"{name}t64 | {name}" if name == "libglib2.0-0" else name for name in packages]
