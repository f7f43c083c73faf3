"""What is sent: everything that the recipe names, Burnish itself, and nothing that a job does not need."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.html_page.style import FACES
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.bundle.wheel import own_wheel

from support.runs.tiny_runs import tiny_recipe
from support.sources import modules, source


@pytest.fixture(scope="module")
def wheel():
    return own_wheel()


def unpacked(bundle, folder):
    stream = io.BytesIO()
    bundle.write_tar(stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.full
def test_a_bundle_holds_what_the_recipe_names_with_hashes(tmp_path):
    recipe = tiny_recipe(tmp_path)
    files = [*recipe.data.files, "hf://datasets/a/b"]
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": files})})
    bundle = make_bundle(recipe, "run", gpus=2, timeout_s=60)
    there = unpacked(bundle, tmp_path / "there")
    again = load_recipe(there / "recipe.toml")
    assert Path(again.data.files[0]).read_bytes() == Path(recipe.data.files[0]).read_bytes()
    assert again.data.files[1] == "hf://datasets/a/b"
    assert Path(again.data.validation_files[0]).is_relative_to(there)
    assert {path.name for path in Path(again.model.path).iterdir()} == {
        path.name for path in Path(recipe.model.path).iterdir()
    }
    assert again.devices.where == "here"
    for name, sha256 in bundle.manifest.files.items():
        assert hashlib.sha256((there / name).read_bytes()).hexdigest() == sha256
    sent = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert sent == {*bundle.manifest.files, "manifest.json"}
    assert (bundle.manifest.gpus, bundle.manifest.timeout_s) == (2, 60)
    assert str(tmp_path) not in (there / "recipe.toml").read_text() + (there / "manifest.json").read_text()


@pytest.mark.full
def test_two_files_of_one_name_stay_apart(tmp_path):
    recipe = tiny_recipe(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(f'{{"text": "{name}"}}\n')
    files = [str(tmp_path / name / "rows.jsonl") for name in ("a", "b")]
    bundle = make_bundle(recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": files})}), "run")
    again = load_recipe(unpacked(bundle, tmp_path / "there") / "recipe.toml")
    assert [Path(name).read_text() for name in again.data.files] == ['{"text": "a"}\n', '{"text": "b"}\n']


def test_a_file_that_is_not_there_is_named(tmp_path):
    recipe = tiny_recipe(tmp_path)
    data = recipe.data.model_copy(update={"files": [str(tmp_path / "gone.jsonl")]})
    with pytest.raises(UsageError, match=r"gone\.jsonl"):
        make_bundle(recipe.model_copy(update={"data": data}), "run")


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    recipe = tiny_recipe(tmp_path)
    monkeypatch.setattr("burnish_engine.remote.bundle.bundle.known_sha256", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        make_bundle(recipe, "run")


class Cutting(io.BytesIO):
    """A stream that cuts a file short with the first bytes that are written to it."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def write(self, data):
        self._path.write_text("{")
        return super().write(data)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "shorter"])
def test_a_file_that_changes_while_it_is_sent_is_named(gone, tmp_path):
    recipe = tiny_recipe(tmp_path)
    rows = Path(recipe.data.files[0])
    rows.write_text(rows.read_text() * (2**20 // rows.stat().st_size + 1))
    bundle, stream = make_bundle(recipe, "run"), io.BytesIO() if gone else Cutting(rows)
    if gone:
        rows.unlink()
    with pytest.raises(UsageError, match=rows.name):
        bundle.write_tar(stream)


@pytest.mark.full
def test_the_wheel_is_the_same_each_time_and_leaves_the_window_out(wheel):
    own_wheel.cache_clear()
    assert own_wheel() == wheel
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        names = archive.namelist()
        about = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "burnish_engine/assets/samples" in {str(Path(name).parent.as_posix()) for name in names}
    assert not [name for name in names if name.startswith("burnish_app") or name.endswith((".otf", ".ttf"))]
    drawn = {"icons/burnish.svg", *(f"fonts/{face}.woff2" for _, _, face in FACES)}
    assert {f"burnish_engine/assets/{file}" for file in drawn} <= {*names}, "a report page is written there too"
    required = [line for line in about.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert any("torch" in line for line in required)
    assert not [line for line in required if any(name in line for name in ("PySide6", "llama-cpp", "pyqtgraph"))]


BLOCKED = {"PySide6", "shiboken6", "pyqtgraph", "markdown_it", "llama_cpp", "burnish_app"}
PARTS = ("contract", "runs", "data", "models", "advise", "scoring", "train", "remote", "cli", "hub")


def test_what_training_needs_is_there_without_window_and_llama():
    """A job's machine has neither: no module that is imported on the way to training imports them at its start."""
    known, reached = modules(), set()
    waiting = [name for name in known if name.startswith(tuple(f"burnish_engine.{part}" for part in PARTS))]
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            waiting += source(known[name]).imports_at_start
    assert any(name.startswith("burnish_kernels.") for name in reached)
    needing = {name: source(known[name]).imports_at_start for name in reached}
    assert not {name for name, needed in needing.items() if BLOCKED & {one.split(".")[0] for one in needed}}
