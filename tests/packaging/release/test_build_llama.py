"""A release's wheels of llama-cpp-python: the source is changed where it must be, and pip takes the wheel."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import build_llama
import pytest
from zig_compiler import translated

NAME = "llama_cpp_python-0.3.36"
VARIANTS = "".join(f"    ggml_add_cpu_backend_variant({name} SSE42)\n" for name in ["x64", *build_llama._LEFT_OUT])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source archive with just the files that are changed or packed."""
    root = tmp_path / NAME
    texts = {path: "".join(f"{old}\n" for old, _ in changes) for path, changes in build_llama.CHANGES.items()}
    texts |= {f"{build_llama._GGML}/CMakeLists.txt": VARIANTS, "PKG-INFO": "Metadata-Version: 2.1\n"}
    texts |= {
        "LICENSE.md": "MIT",
        "vendor/llama.cpp/LICENSE": "MIT",
        "llama_cpp/__init__.py": '__version__ = "0.3.36"\n',
    }
    texts["PKG-INFO"] += "Name: llama_cpp_python\nVersion: 0.3.36\n"
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return packed(root, tmp_path / f"{NAME}.tar.gz")


def packed(root: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as file:
        file.add(root, root.name)
    return archive


def test_llama_cpps_source_is_changed_once(source: Path, tmp_path: Path) -> None:
    root = build_llama.unpack(source, tmp_path / "work")
    for path, changes in build_llama.CHANGES.items():
        assert (root / path).read_text(encoding="utf-8") == "".join(f"{new}\n" for _, new in changes)
    assert (root / build_llama._GGML / "CMakeLists.txt").read_text().split("(")[1:] == ["x64 SSE42)\n"]
    (root / "PKG-INFO").write_text("kept")
    assert build_llama.unpack(source, tmp_path / "work") == root
    assert (root / "PKG-INFO").read_text() == "kept", (
        "what was unpacked is not touched, so that nothing is compiled anew"
    )


@pytest.mark.parametrize("path", [*build_llama.CHANGES, f"{build_llama._GGML}/CMakeLists.txt"])
def test_another_llama_cpp_is_refused(source: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / NAME / path).write_text("something else\n", encoding="utf-8")
    packed(tmp_path / NAME, source)
    with pytest.raises(ValueError, match=r"[Aa]dapt"):
        build_llama.unpack(source, tmp_path / "work")
    with pytest.raises(ValueError, match=r"[Aa]dapt"):
        build_llama.unpack(source, tmp_path / "work")


def test_pip_installs_the_wheel(source: Path, tmp_path: Path) -> None:
    root = build_llama.unpack(source, tmp_path / "work")
    library = tmp_path / "libllama.so"
    library.write_bytes(b"\x7fELF")
    target = build_llama.Target("", "Linux", "any", "any")
    wheels = [build_llama.pack(root, target, [library], tmp_path / folder) for folder in ("one", "two")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    assert zipfile.ZipFile(wheels[0]).testzip() is None
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(wheels[0])], check=True)
    assert (tmp_path / "site" / "llama_cpp" / "lib" / library.name).read_bytes() == b"\x7fELF"


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("-march=armv8-a", "-mcpu=generic+v8a"), ("-mavx2", "-mavx2"), ("-O3", "-O3"),
        ("-march=armv8.2-a+dotprod+fp16", "-mcpu=generic+v8_2a+dotprod+fullfp16"),
    ],
)  # fmt: skip
def test_processors_are_named_as_zig_names_them(option: str, wanted: str) -> None:
    assert translated(option) == wanted
