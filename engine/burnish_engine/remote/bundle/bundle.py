"""Packs what is sent to another machine: recipe, data, a base model that is a folder, Burnish itself, and hashes."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import is_address, is_model_name
from burnish_engine.contract.recipe.on_gpus import recipe_there
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.models.saved_adapters.saved_adapter import ADAPTER_FILES
from burnish_engine.models.saved_adapters.start_adapter import open_start
from burnish_engine.remote.bundle.wheel import Wheel, own_wheel, pinned
from burnish_engine.remote.there.job_folder import MANIFEST, BundleManifest
from burnish_engine.runs.file_hashes import known_sha256

EMBEDDED = "embedded"


@dataclass
class Bundle:
    """Files to send, by their path in the job's folder.

    Attributes:
        wheel: Burnish itself.
        needs_demo: whether the recipe trains the embedded model, which is a package of its own.
        manifest: what is sent, with hashes.
    """

    wheel: Wheel
    needs_demo: bool
    manifest: BundleManifest
    _paths: dict[str, Path] = field(default_factory=dict)
    _texts: dict[str, bytes] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes to send."""
        return sum(path.stat().st_size for path in self._paths.values()) + sum(map(len, self._texts.values()))

    def files(self) -> Iterator[tuple[str, Path | bytes]]:
        """Yield every file, by its path in the job's folder; the manifest comes last."""
        yield from sorted(self._paths.items())
        yield from sorted(self._texts.items(), key=lambda one: (one[0] == MANIFEST, one[0]))

    def text(self, name: str) -> str:
        """Return a text that was made for the job."""
        return self._texts[name].decode()

    def write_tar(self, target: IO[bytes]) -> None:
        """Write all files as a tar stream, without who owns them here.

        Raises:
            UsageError: A file cannot be read any more, or became shorter.
            OSError: The stream cannot be written.
        """
        with tarfile.open(fileobj=target, mode="w|") as archive:
            for name, source in self.files():
                entry = tarfile.TarInfo(name)
                entry.mode = 0o600
                if isinstance(source, bytes):
                    entry.size = len(source)
                    archive.addfile(entry, io.BytesIO(source))
                    continue
                with closing(_SentFile(source)) as file:
                    entry.size, entry.mtime = file.size_bytes, file.mtime
                    archive.addfile(entry, file)


class _SentFile:
    """A file while it is sent: what goes wrong with it is told apart from what goes wrong on the way.

    Args:
        path: path of the file.

    Raises:
        UsageError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise _unreadable(path, error) from error
        facts = os.fstat(self._file.fileno())
        self.size_bytes, self.mtime = facts.st_size, int(facts.st_mtime)

    def read(self, size: int = -1, /) -> bytes:
        """Read exactly so many bytes; raises `UsageError` where the file no longer has them."""
        try:
            data = self._file.read(size)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        if len(data) < size:
            raise UsageError(f"{self._path} became shorter while it was sent.", "Leave it as it is, and submit again.")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def make_bundle(recipe: Recipe, run: str, *, gpus: int = 0, timeout_s: int = 0, anyway: bool = False) -> Bundle:
    """Collect what a job needs.

    Args:
        recipe: recipe with absolute paths.
        run: name of the run.
        gpus: number of GPUs that share the steps; 0: as the recipe says.
        timeout_s: longest time of the job, seconds.
        anyway: whether to train although the plan says that it does not fit.

    Raises:
        UsageError: A file that the recipe names does not exist or cannot be read.
        SetupError: The adapter to continue from is damaged.
    """
    paths: dict[str, Path] = {}
    data = recipe.data.model_copy(
        update={
            "files": [_add(paths, name, f"data/{n:02d}") for n, name in enumerate(recipe.data.files)],
            "validation_files": [
                _add(paths, name, f"validation/{n:02d}") for n, name in enumerate(recipe.data.validation_files)
            ],
        }
    )
    if data.template.endswith(".jinja"):
        data = data.model_copy(update={"template": _add(paths, data.template, "template")})
    model = recipe.model
    if model.path != EMBEDDED and not is_model_name(model.path):
        # With "./" it cannot be taken for the name of a model on a hub.
        model = model.model_copy(update={"path": "./" + _add(paths, model.path, "model")})
    adapter = recipe.adapter
    if (start := open_start(adapter)) is not None:
        paths |= {f"start/{name}": start.folder / name for name in ADAPTER_FILES}
        adapter = adapter.model_copy(update={"start": "start"})
    shared = recipe_there(recipe, gpus)
    there = shared.model_copy(update={"data": data, "model": model, "adapter": adapter})
    gpus = gpus or (len(there.devices.gpus) if there.devices.shares else 0)
    wheel = own_wheel()
    texts = {
        "recipe.toml": dump_recipe(there).encode(),
        "constraints.txt": ("\n".join(pinned(wheel.requirements)) + "\n").encode(),
        wheel.name: wheel.content,
    }
    hashes = {name: _hash(path) for name, path in sorted(paths.items())}
    hashes |= {name: hashlib.sha256(text).hexdigest() for name, text in sorted(texts.items())}
    manifest = BundleManifest(run=run, files=hashes, gpus=gpus, timeout_s=timeout_s, anyway=anyway)
    texts[MANIFEST] = manifest.model_dump_json(indent=1).encode()
    return Bundle(wheel, model.path == EMBEDDED, manifest, paths, texts)


def _hash(path: Path) -> str:
    try:
        return known_sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check the file.")


def _add(paths: dict[str, Path], name: str, folder: str) -> str:
    """Add a file, or a folder with all that is in it; return its path in the job's folder."""
    if is_address(name):
        return name
    source = Path(name)
    if source.is_file():
        paths[f"{folder}/{source.name}"] = source
    elif source.is_dir():
        inside = [path for path in sorted(source.rglob("*")) if path.is_file()]
        paths |= {f"{folder}/{source.name}/{path.relative_to(source).as_posix()}": path for path in inside}
    else:
        raise UsageError(f"{name}, which the recipe names, does not exist.", "Check the path.")
    return f"{folder}/{source.name}"
