"""Packs the frozen window for Linux: a Debian package, and an archive that installs itself for one person.

    python linux_package.py WINDOW ICONS FOLDER VERSION

WINDOW is the frozen folder, ICONS the folder that `icons.py` wrote, FOLDER gets `burnish_VERSION_ARCHITECTURE.deb` and
`burnish-VERSION-linux-MACHINE.run`. Nothing but Python is needed, so that any Linux makes them. The same content gives
the same bits: times are those of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import lzma
import os
import platform
import stat
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bundle import packages_needed

MOST_BYTES = 65_000_000
"""Most bytes of a package."""
PROGRAM = "burnish-studio"
_HERE = Path(__file__).resolve().parent
_DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIME = int(os.environ.get("SOURCE_DATE_EPOCH", "1735689600"))
_LIBRARY = "usr/lib/burnish"


@dataclass(frozen=True)
class Entry:
    """A file or a link of a package; links have a target and no content."""

    content: bytes = b""
    mode: int = 0o644
    target: str = ""


def window_entries(window: Path) -> dict[str, Entry]:
    """The frozen window's files, by their path within its folder."""
    found = {}
    for path in sorted(window.rglob("*")):
        name = path.relative_to(window).as_posix()
        if path.is_symlink():
            found[name] = Entry(target=path.readlink().as_posix())
        elif path.is_file():
            runs = path.stat().st_mode & stat.S_IXUSR
            found[name] = Entry(path.read_bytes(), 0o755 if runs else 0o644)
    return found


def desktop_entries(icons: Path, version: str) -> dict[str, Entry]:
    """The files that make the window part of a desktop, by their path below `share`."""
    desktop = _HERE / "desktop"
    day = datetime.datetime.fromtimestamp(_TIME, datetime.UTC).date().isoformat()
    metainfo = (desktop / "org.burnish.Studio.metainfo.xml").read_text(encoding="utf-8")
    metainfo = metainfo.replace("@VERSION@", version).replace("@DATE@", day)
    found = {
        "applications/burnish.desktop": Entry((desktop / "burnish.desktop").read_bytes()),
        "mime/packages/burnish.xml": Entry((desktop / "burnish-mime.xml").read_bytes()),
        "metainfo/org.burnish.Studio.metainfo.xml": Entry(metainfo.encode()),
    }
    for path in sorted((icons / "hicolor").rglob("burnish.*")):
        found[f"icons/{path.relative_to(icons).as_posix()}"] = Entry(path.read_bytes())
    return found


def deb(window: Path, icons: Path, version: str, machine: str) -> bytes:
    """The Debian package. Its removal leaves what a person made: runs, models and engine lie in their own folder."""
    entries = {f"{_LIBRARY}/{name}": entry for name, entry in window_entries(window).items()}
    entries |= {f"usr/share/{name}": entry for name, entry in desktop_entries(icons, version).items()}
    entries[f"usr/bin/{PROGRAM}"] = Entry(target=f"../lib/burnish/{PROGRAM}")
    entries["usr/share/doc/burnish/copyright"] = Entry((_HERE.parents[1] / "LICENSE").read_bytes())
    control = {"control": Entry(_control(entries, window, version, machine).encode())}
    control["md5sums"] = Entry(_sums(entries).encode())
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": packed(control),
        "data.tar.xz": packed(entries),
    }
    return archived(members)


def _control(entries: Mapping[str, Entry], window: Path, version: str, machine: str) -> str:
    size_kib = sum(len(entry.content) // 1024 + 1 for entry in entries.values())
    fields = {
        "Package": "burnish",
        "Version": version,
        "Architecture": _DEBIAN_NAMES[machine],
        "Maintainer": "The Burnish authors <burnish@localhost>",
        "Installed-Size": str(size_kib),
        "Depends": ", ".join(packages_needed(window)),
        "Recommends": "xdg-utils, xdg-desktop-portal",
        "Section": "science",
        "Priority": "optional",
        "Description": "fine-tune a language model on your own machine\n"
        " Burnish trains a language model on your own data, shows while it learns whether\n"
        " it gets better, and writes a quantized GGUF file that was checked.\n"
        " .\n"
        " This package is the window. It sets the engine up in your own folder.",
    }
    return "".join(f"{name}: {text}\n" for name, text in fields.items())


def _sums(entries: Mapping[str, Entry]) -> str:
    lines = []
    for name, entry in entries.items():
        if not entry.target:
            lines.append(f"{hashlib.md5(entry.content, usedforsecurity=False).hexdigest()}  {name}\n")
    return "".join(lines)


def packed(entries: Mapping[str, Entry]) -> bytes:
    """A tar archive of entries and their folders, owned by root, compressed by xz."""
    buffer = io.BytesIO()
    folders = {parent.as_posix() for name in entries for parent in Path(name).parents}
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(folders | set(entries)):
            tar.addfile(*_tar_member(name, entries.get(name)))
    return lzma.compress(buffer.getvalue(), preset=6)


def _tar_member(name: str, entry: Entry | None) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    member = tarfile.TarInfo("." if name == "." else f"./{name}")
    member.mtime, member.uname, member.gname = _TIME, "root", "root"
    if entry is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        return member, None
    if entry.target:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.target, 0o777
        return member, None
    member.mode, member.size = entry.mode, len(entry.content)
    return member, io.BytesIO(entry.content)


def archived(members: Mapping[str, bytes]) -> bytes:
    """An archive of the kind that `ar` makes, as a Debian package is one: deb(5)."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        parts.append(f"{name:<16}{_TIME:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
        parts.append(content + b"\n" * (len(content) % 2))
    return b"".join(parts)


def installer(window: Path, icons: Path, version: str) -> bytes:
    """The archive that installs itself: a script for the shell, followed by a compressed tar archive."""
    entries = {f"program/{name}": entry for name, entry in window_entries(window).items()}
    entries |= {f"share/{name}": entry for name, entry in desktop_entries(icons, version).items()}
    entries["remove.sh"] = Entry((_HERE / "desktop" / "remove.sh").read_bytes(), 0o755)
    payload = packed(entries)
    script = (_HERE / "desktop" / "install.sh").read_text(encoding="utf-8")
    script = script.replace("@SHA256@", hashlib.sha256(payload).hexdigest()).replace("@VERSION@", version)
    return script.replace("@LINES@", str(script.count("\n") + 1)).encode() + payload


def make_packages(window: Path, icons: Path, folder: Path, version: str) -> list[Path]:
    """Write both packages for this machine's processor; returns their files.

    Raises:
        SystemExit: A package is too large.
    """
    machine = platform.machine()
    packages = {
        f"burnish_{version}_{_DEBIAN_NAMES[machine]}.deb": deb(window, icons, version, machine),
        f"burnish-{version}-linux-{machine}.run": installer(window, icons, version),
    }
    for name, content in packages.items():
        if len(content) > MOST_BYTES:
            raise SystemExit(f"{name} has {len(content) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}.")
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755 if name.endswith(".run") else 0o644)
        print(f"{folder / name}: {len(content) / 1e6:.1f} MB", flush=True)
    return [folder / name for name in packages]


if __name__ == "__main__":
    make_packages(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
