"""A whole set-up without a network: a tiny project and stand-in wheels, in a folder with a space and an umlaut."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from burnish_engine.install.machine.choose_builds import (
    LLAMA_VERSION,
    TORCH_VERSION,
    TRITON_VERSION,
    TRITON_WINDOWS_VERSION,
)

ROOT = Path(__file__).resolve().parents[2]

TORCH = f"__version__ = '{TORCH_VERSION}+cpu'\nfrom torch import version\n"
LLAMA = f"__version__ = '{LLAMA_VERSION}'\ndef llama_backend_init(): pass\n"
CLI = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd(), sys.flags.utf8_mode]))\nsys.exit(14)\n"
WHEELS = [
    ("torch", f"{TORCH_VERSION}+cpu", {"torch/__init__.py": TORCH, "torch/version.py": "cuda = None\n"}),
    ("triton", TRITON_VERSION, {"triton/__init__.py": ""}),
    ("triton_windows", TRITON_WINDOWS_VERSION, {"triton/__init__.py": ""}),
    ("llama_cpp_python", LLAMA_VERSION, {"llama_cpp/__init__.py": LLAMA}),
    ("editables", "0.6", {"editables/__init__.py": ""}),
    ("stand_in_model", "1.0", {"stand_in_model/__init__.py": ""}),
]
PROJECT = """
[build-system]
requires = []
build-backend = "stand_in_backend"
backend-path = ["backend"]
[project]
name = "burnish"
version = "0.1.0"
dependencies = []
[project.optional-dependencies]
demo = ["stand-in-model"]
dev = []
"""
PACKAGES = f"""\
editables==0.6
torch=={TORCH_VERSION}
triton=={TRITON_VERSION} ; sys_platform == 'linux'
triton-windows=={TRITON_WINDOWS_VERSION} ; sys_platform == 'win32'
"""
# The smallest build backend of an editable wheel: a .pth file that names the sources.
BACKEND = """
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from stand_in_wheel import write_wheel
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    root = pathlib.Path.cwd()
    text = f"{root / 'engine'}\\n{root / 'kernels'}\\n"
    return write_wheel(pathlib.Path(wheel_directory), "burnish", "0.1.0", {"_editable_impl_burnish.pth": text})
"""


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    info = f"{name}-{version}.dist-info"
    contents = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text.encode())}\n"
        for path, text in contents.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in (contents | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
            wheel.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl"


def _checkout(root: Path) -> Path:
    for path, text in {
        "pyproject.toml": PROJECT,
        "backend/stand_in_backend.py": BACKEND,
        "backend/stand_in_wheel.py": Path(__file__).read_text(encoding="utf-8").split("def write_wheel", 1)[1],
        "engine/burnish_engine/__init__.py": "",
        "engine/burnish_engine/cli/__init__.py": "",
        "engine/burnish_engine/cli/main.py": CLI,
        "kernels/burnish_kernels/__init__.py": "",
        "packaging/lock/packages.txt": PACKAGES,
        "packaging/lock/llama.txt": f"llama-cpp-python=={LLAMA_VERSION}\n",
        "packaging/lock/model.txt": "stand-in-model==1.0\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    writer = "import base64, hashlib, zipfile\nfrom pathlib import Path\ndef write_wheel"
    body = (root / "backend/stand_in_wheel.py").read_text(encoding="utf-8").split("\n\n\n", 1)[0]
    (root / "backend/stand_in_wheel.py").write_text(writer + body + "\n", encoding="utf-8")
    shared = root / "engine/burnish_engine/install"
    shutil.copytree(ROOT / "engine/burnish_engine/install/machine", shared / "machine")
    (shared / "__init__.py").write_text("")
    for path in (ROOT / "packaging").glob("*.py"):
        shutil.copy(path, root / "packaging" / path.name)
    (root / "wheels").mkdir()
    for name, version, files in WHEELS:
        write_wheel(root / "wheels", name, version, files)
    return root


def _run(root: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
        "BURNISH_WHEELHOUSE": str(root / "wheels"),
        "BURNISH_ALLOW_CPU": "1",
        "PYTHONPATH": "/nowhere",
    }
    command = [sys.executable, str(root / "packaging" / "bootstrap.py"), *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.mark.full
@pytest.mark.slow
def test_set_up_run_and_start_again(tmp_path: Path) -> None:
    root = _checkout(tmp_path / "bür nish")
    first = _run(root, "run", "plan", "a b.toml", cwd=tmp_path)
    assert first.returncode == 14, first.stderr
    assert json.loads(first.stdout) == [["plan", "a b.toml"], str(tmp_path), 1]
    assert "Set up in" in first.stderr
    assert f"Not checked: {root / 'wheels'}" in first.stderr, "no list has the hashes of wheels made here"
    assert (root / ".venv" / "burnish-setup.json").is_file()

    second = _run(root, "run", cwd=tmp_path)
    assert json.loads(second.stdout)[0] == ["--help"]
    assert second.stderr == "", "a second set-up would say so"

    (root / ".venv" / "burnish-setup.json").unlink()  # as after a killed set-up
    (root / "wheels" / f"torch-{TORCH_VERSION}+cpu-py3-none-any.whl").unlink()
    next((root / ".venv").rglob("torch-*.dist-info/RECORD")).unlink()
    third = _run(root, "setup", cwd=tmp_path)
    assert third.returncode == 12
    assert "no build of torch" in third.stderr, third.stderr
    assert not (root / ".venv" / "burnish-setup.json").exists(), "a failed set-up is not a finished one"
