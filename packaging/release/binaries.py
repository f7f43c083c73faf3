"""Reads what a program or library asks of its system: the libraries it names, and the oldest glibc that it runs on.

Sources: the ELF-64 object file format (System V ABI), the symbol versions of the Linux Standard Base, and Microsoft's
PE format. Files of 64-bit little-endian machines are read, which are all that Burnish runs on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NEEDED, _DYNAMIC, _VERSIONS_NEEDED = 1, 6, 0x6FFFFFFE  # DT_NEEDED, SHT_DYNAMIC, SHT_GNU_verneed
_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")


@dataclass(frozen=True)
class Needs:
    """The demands of a file on its system.

    Attributes:
        libraries: file names of the libraries that are loaded with it.
        glibc: oldest version of glibc that has its symbols; (0, 0): it uses none.
    """

    libraries: frozenset[str] = field(default_factory=frozenset)
    glibc: tuple[int, int] = (0, 0)


def needs(path: Path) -> Needs | None:
    """Read what a file asks of its system; None: it is neither a program nor a library.

    Args:
        path: file of any kind.
    """
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"\x7fELF":
        return _elf_needs(path.read_bytes())
    return _pe_needs(path.read_bytes()) if start[:2] == b"MZ" else None


def _elf_needs(data: bytes) -> Needs:
    sections = list(_elf_sections(data))
    libraries, glibc = set(), (0, 0)
    for kind, start, size, link in sections:
        if kind not in (_DYNAMIC, _VERSIONS_NEEDED):
            continue
        strings = sections[link][1]
        if kind == _DYNAMIC:
            entries = struct.iter_unpack("<qQ", data[start : start + size])
            libraries |= {_text(data, strings + value) for tag, value in entries if tag == _NEEDED}
        else:
            names = [_GLIBC.fullmatch(_text(data, strings + name)) for name in _version_names(data, start)]
            glibc = max([glibc, *((int(found[1]), int(found[2])) for found in names if found)])
    return Needs(frozenset(libraries), glibc)


def _elf_sections(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, place in the file, size and linked section of each section."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for index in range(count):
        _, kind, _, _, start, length, link = struct.unpack_from("<IIQQQQI", data, table + index * size)
        yield kind, start, length, link


def _version_names(data: bytes, at: int) -> Iterator[int]:
    """Yield where in the string table the name of each needed version stands."""
    while True:
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, further = struct.unpack_from("<IHHII", data, entry)
            yield name
            entry += further
        if not following:
            return
        at += following


def _pe_needs(data: bytes) -> Needs:
    (header,) = struct.unpack_from("<I", data, 0x3C)
    if data[header : header + 4] != b"PE\0\0":
        return Needs()
    sections, optional_size = struct.unpack_from("<H12xH", data, header + 6)
    (address,) = struct.unpack_from("<I", data, header + 24 + 120)  # the second directory of a 64-bit file: imports
    table = [struct.unpack_from("<8xIIII", data, header + 24 + optional_size + 40 * index) for index in range(sections)]

    def place(virtual: int) -> int:
        for size, start, raw_size, raw in table:
            if start <= virtual < start + max(size, raw_size):
                return int(virtual - start + raw)
        raise ValueError(f"Address {virtual:#x} lies in no section.")

    libraries = set()
    at = place(address) if address else 0
    while address and (name := struct.unpack_from("<I", data, at + 12)[0]):
        libraries.add(_text(data, place(name)))
        at += 20
    return Needs(frozenset(libraries))


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
