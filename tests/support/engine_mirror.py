"""A small release of the engine with made-up wheels, and a local mirror of it that can misbehave."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import sysconfig
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from burnish_engine.install.machine.choose_builds import LLAMA_VERSION, TORCH_VERSION
from burnish_engine.install.release import ed25519, minisign
from burnish_engine.install.release.description import DESCRIPTION, SIGNATURE

ROOT = Path(__file__).resolve().parents[2]
SECRET, NUMBER = bytes(range(32)), b"burnish!"
KEY = minisign.PublicKey(NUMBER, ed25519.public_key(SECRET))
TARGET = "linux-x86_64-cpu"
_TRIAL = ROOT / "engine/burnish_engine/install/machine/torch_trial.py"
_DOCTOR = "import json\nprint(json.dumps({'ready': %s, 'problems': ['made up']}))\n"


def wheel(name: str, version: str, files: dict[str, str]) -> tuple[str, bytes]:
    """A wheel's file name and content."""
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
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path, text in (contents | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
            packed.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", content.getvalue()


def python_archive() -> bytes:
    """A Python in an archive: this one's program, which takes its library from where it is installed."""
    content = io.BytesIO()
    base = Path(sysconfig.get_config_var("BINDIR"))
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as packed:
        for name, data, mode in (
            ("python/pyvenv.cfg", f"home = {base}\n".encode(), 0o644),
            ("python/bin/python3", program.read_bytes(), 0o755),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            packed.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def uv_wheel(program: bytes | None = None) -> tuple[str, bytes]:
    """A wheel of uv; without a program, of the stand-in beside this file."""
    text = f"#!{sys.executable} -S\n" + Path(__file__).with_name("stand_in_uv.py").read_text(encoding="utf-8")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("uv-1.0.data/scripts/uv", program or text.encode())
    return "uv-1.0-py3-none-any.whl", content.getvalue()


@dataclass
class MadeUpRelease:
    """The files of a release by name, with its description and signature."""

    version: str = "0.1.0"
    torch_ok: bool = True
    ready: bool = True
    trial_s: float = 0.0
    target: str = TARGET
    padding: int = 0
    uv: bytes | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sleep = f"import time\ntime.sleep({self.trial_s})\n"
        torch = f"{sleep}__version__ = '{TORCH_VERSION}+cpu'\nfrom torch import version\n"
        wheels = [
            wheel(
                "torch",
                f"{TORCH_VERSION}+cpu",
                {
                    "torch/__init__.py": f"import time\ntime.sleep({self.trial_s})\n{torch}"
                    if self.torch_ok
                    else "raise ImportError('made up')\n",
                    "torch/version.py": "cuda = None\n",
                    "torch/padding.txt": "x" * self.padding,
                },
            ),
            wheel(
                "llama_cpp_python",
                LLAMA_VERSION,
                {"llama_cpp/__init__.py": f"__version__ = '{LLAMA_VERSION}'\ndef llama_backend_init(): pass\n"},
            ),
            wheel(
                "burnish",
                self.version,
                {
                    "burnish_engine/__init__.py": f"VERSION = {self.version!r}\n",
                    "burnish_engine/install/__init__.py": "",
                    "burnish_engine/install/machine/__init__.py": "",
                    "burnish_engine/install/machine/torch_trial.py": _TRIAL.read_text(encoding="utf-8"),
                    "burnish_engine/cli/__init__.py": "",
                    "burnish_engine/cli/main.py": _DOCTOR % self.ready,
                    "burnish_kernels/__init__.py": "",
                },
            ),
        ]
        named = [("python.tar.gz", python_archive()), uv_wheel(self.uv), *wheels]
        self.files = dict(named)
        self.hashes = {name: hashlib.sha256(content).hexdigest() for name, content in named}
        kinds = {"python.tar.gz": "python", named[1][0]: "uv"}
        text = json.dumps(
            {
                "format": 1,
                "version": self.version,
                "python": "{}.{}.{}".format(*sys.version_info[:3]),
                "changes": [f"Changes of {self.version}."],
                "targets": {
                    self.target: {
                        "python": "python/bin/python3",
                        "installed_bytes": 10_000_000,
                        "files": list(self.hashes.values()),
                    }
                },
                "files": {
                    self.hashes[name]: {
                        "name": name,
                        "bytes": len(content),
                        "kind": kinds.get(name, "wheel"),
                        "address": f"files/{name}",
                    }
                    for name, content in named
                },
            }
        )
        self.text = text
        self.signature = minisign.sign(SECRET, NUMBER, text.encode(), f"burnish {self.version}")

    def write(self, folder: Path) -> Path:
        """Write the release into a folder."""
        (folder / "files").mkdir(parents=True)
        (folder / DESCRIPTION).write_text(self.text, encoding="utf-8")
        (folder / SIGNATURE).write_text(self.signature, encoding="utf-8")
        for name, content in self.files.items():
            (folder / "files" / name).write_bytes(content)
        return folder

    @property
    def large(self) -> str:
        """The name of the largest wheel."""
        return next(name for name in self.files if name.startswith("torch"))


@dataclass
class Mirror:
    """Answers of a local server.

    Attributes:
        contents: content of each path.
        faults: for each path, what its next answers do wrong: `cut`, `wrong`, `page`, `missing`, `login` or `no_range`.
        asked: paths that were asked for, with the offset.
        block_pause_s: pause after each 64 KiB.
        address: address of the server.
        authorization: header of that name of the last request that had one.
    """

    contents: dict[str, bytes]
    faults: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    block_pause_s: float = 0.0
    address: str = ""
    authorization: str = ""

    def serve(self, release: MadeUpRelease) -> None:
        """Serve a release."""
        self.contents = {f"/files/{name}": content for name, content in release.files.items()}
        self.contents |= {f"/{DESCRIPTION}": release.text.encode(), f"/{SIGNATURE}": release.signature.encode()}


@contextmanager
def mirror(release: MadeUpRelease):
    """Serve a release on this machine."""
    answers = Mirror({})
    answers.serve(release)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, answers)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answers.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, answers: Mirror) -> None:
    queue = answers.faults.get(handler.path, [])
    fault = queue.pop(0) if queue else ""
    offset = int(handler.headers.get("Range", "bytes=0-")[6:].rstrip("-")) if fault != "no_range" else 0
    answers.asked.append((handler.path, offset))
    answers.authorization = handler.headers.get("Authorization", answers.authorization)
    content = answers.contents.get(handler.path)
    if content is None or fault == "missing":
        handler.send_error(404)
        return
    if fault == "login":
        handler.send_error(407)
        return
    if fault == "page":
        content, offset = b"<!doctype html><title>Log in</title>", 0
    if fault == "wrong":
        content = bytes(len(content))
    handler.send_response(206 if offset else 200)
    handler.send_header("Content-Type", "text/html" if fault == "page" else "application/octet-stream")
    handler.send_header("Content-Length", str(len(content) - offset))
    if offset:
        handler.send_header("Content-Range", f"bytes {offset}-{len(content) - 1}/{len(content)}")
    handler.end_headers()
    rest = content[offset:]
    if fault == "cut":
        rest = rest[: len(rest) // 2]
    try:
        for start in range(0, len(rest), 65536):
            handler.wfile.write(rest[start : start + 65536])
            if answers.block_pause_s:
                time.sleep(answers.block_pause_s)
    except OSError:
        pass  # who asked is gone
    handler.close_connection = True
