"""The demands of programs and libraries on their system are read from real and from made files."""

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from binaries import Needs, needs
from bundle import is_of_system, packages_needed, reached


@pytest.mark.skipif(shutil.which("objdump") is None, reason="compared with objdump's answer")
def test_a_real_library_is_read_as_binutils_reads_it():
    for path in (Path(sys.executable).resolve(), *Path(sys.prefix).rglob("_pydantic_core*.so")):
        text = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        versions = [tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)\n", text)]
        assert needs(path) == Needs(frozenset(re.findall(r"NEEDED\s+(\S+)", text)), max(versions))


def test_imports_of_a_windows_library_are_read(tmp_path):
    file = tmp_path / "a.dll"
    file.write_bytes(portable_executable(["KERNEL32.dll", "ggml-base.dll"]))
    assert needs(file) == Needs(frozenset({"KERNEL32.dll", "ggml-base.dll"}))


def portable_executable(libraries):
    """A 64-bit PE file of one section, which is loaded 0x1000 above its place in the file and holds the imports."""
    head, start = bytearray(0x200), 0x200
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 0x3C, 0x40)
    head[0x40:0x44] = b"PE\0\0"
    struct.pack_into("<HH12xH", head, 0x44, 0x8664, 1, 240)
    struct.pack_into("<I", head, 0x40 + 24 + 120, start + 0x1000)
    struct.pack_into("<8sIIII", head, 0x40 + 24 + 240, b".idata", 0x200, start + 0x1000, 0x200, start)
    table, names = b"", b""
    for library in libraries:
        place = start + 0x1000 + 20 * (len(libraries) + 1) + len(names)
        table += struct.pack("<12xI4x", place)
        names += library.encode() + b"\0"
    return bytes(head) + (table + bytes(20) + names).ljust(0x200, b"\0")


def test_other_files_ask_for_nothing(tmp_path):
    for content in (b"", b"#!/bin/sh\n", b"{}"):
        (tmp_path / "file").write_bytes(content)
        assert needs(tmp_path / "file") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's own libraries")
def test_libraries_that_nothing_is_linked_to_are_left_out():
    import _ctypes

    import pydantic_core._pydantic_core as core

    files = {
        "a/core.so": Path(core.__file__),
        "libffi.so.8": Path(_ctypes.__file__),
        "libother.so.1": Path(core.__file__),
    }
    kept = {name for name in needs(Path(_ctypes.__file__)).libraries if name.startswith("libffi")}
    found = reached(files | {"b/ctypes.so": Path(_ctypes.__file__)} | dict.fromkeys(kept, Path(core.__file__)))
    assert found == {"core.so", "ctypes.so", *kept}


def test_debian_packages_are_named_with_their_other_names(tmp_path):
    shutil.copy(Path(sys.executable).resolve(), tmp_path / "python")
    first, *_ = packages_needed(tmp_path)
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\)", first)
    assert is_of_system("libX11.so.6")
    assert not is_of_system("libxcb-cursor.so.0")
