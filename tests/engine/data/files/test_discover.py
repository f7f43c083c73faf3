"""Folders, archives, packed files and dataset folders."""

import bz2
import gzip
import json
import lzma
import zipfile

import pyarrow
import pytest
from pyarrow import feather, ipc, parquet

from burnish_engine.contract.errors import DataError, SetupError, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files import archive
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.prepare import prepare

from support.data.tables import read_rows, table_rows

ROWS = [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(5)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def names(path):
    return [part.name.removeprefix(f"{path}/") for part in find_parts([str(path)]).parts]


def values(path):
    return [row.values for row in read_rows(path)]


def zst(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zst)]
)
def test_packed_files_are_read_as_they_are(tmp_path, ending, pack):
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(pack(LINES))
    assert values(path) == ROWS
    table = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), table)
    packed = tmp_path / f"t.parquet.{ending}"
    packed.write_bytes(pack(table.read_bytes()))
    assert values(packed) == ROWS
    for damaged in (pack(LINES)[:-9], b"not packed at all"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="could not be unpacked"):
            values(path)


@pytest.mark.parametrize("write", [feather.write_feather, "file", "stream"])
def test_arrow_files_of_every_kind(tmp_path, write):
    table, path = pyarrow.Table.from_pylist(ROWS), tmp_path / "a.arrow"
    if callable(write):
        write(table, str(path))
    else:
        with path.open("wb") as sink, getattr(ipc, f"new_{write}")(sink, table.schema) as writer:
            writer.write_table(table)
    assert values(path) == ROWS
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="not a whole Arrow file"):
        values(path)


def test_folders_are_read_in_order_of_names_and_pages_are_left_out(tmp_path):
    for name in ("b.jsonl", "a/z.jsonl", "a/y.csv", "README.md", "image.png", ".hidden.jsonl", "empty.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"" if "empty" in name else LINES if name.endswith("l") else b"prompt,completion\na,b\n")
    found = find_parts([str(tmp_path)])
    assert names(tmp_path) == ["a/y.csv", "a/z.jsonl", "b.jsonl"]
    assert {name.rsplit("/", 1)[-1] for name in found.left_out} == {"image.png", "empty.jsonl"}


def test_a_folder_of_pages_alone_is_read(tmp_path):
    (tmp_path / "README.md").write_text("# A\n\nText.\n")
    assert names(tmp_path) == ["README.md"]


def test_zip_archives_are_read_in_place_and_never_unpacked(tmp_path, make_tokenizer):
    path = tmp_path / "in" / "a.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("../../escaped.jsonl", LINES)
        packed.writestr("/absolute.jsonl", LINES)
        packed.writestr("deep/b.csv", "prompt,completion\na,b\n")
        packed.writestr("again.jsonl.gz", gzip.compress(LINES))
    before = sorted(tmp_path.rglob("*"))
    prepared = prepare(Recipe(data=DataSection(files=[str(path)], validation_share=0.0)), make_tokenizer())
    assert prepared.facts.rows == 11
    assert sorted(tmp_path.rglob("*")) == before
    assert any("packed once more" in why for why in prepared.facts.report.left_out.values())
    assert any("Not read" in warning for warning in prepared.warnings)


@pytest.mark.full
def test_bombs_end_early(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FREE_BYTES", 2**20)
    for name, pack in (("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zst), ("a.txt.xz", lzma.compress)):
        path = tmp_path / name
        path.write_bytes(pack(b'{"text": "' + b"a" * 2**25 + b'"}\n'))
        with pytest.raises(DataError, match=r"unpacks to more|longer than 0.067 GB"):
            values(path)
    bomb = tmp_path / "a.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.txt", (b"word " * 100 + b"\n\n") * 2**15)
    with pytest.raises(DataError, match="unpacks to more"):
        values(bomb)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(20):  # each alone is small enough
            packed.writestr(f"{number}.txt", b"word " * 2**17)
    with pytest.raises(DataError, match="unpacks to more"):
        values(bomb)


def test_the_directory_of_an_archive_is_read_once_for_all_its_files(tmp_path, make_tokenizer, monkeypatch):
    path, opened = tmp_path / "a.zip", []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(30):
            packed.writestr(f"{number:02d}.jsonl", json.dumps({"prompt": f"Q{number}", "completion": "A"}))
    whole = zipfile.ZipFile
    monkeypatch.setattr(zipfile, "ZipFile", lambda *given, **named: opened.append(1) or whole(*given, **named))
    data = DataSection(files=[str(path)], validation_share=0.0)
    assert prepare(Recipe(data=data), make_tokenizer()).facts.rows == 30
    assert len(opened) == 1
    path.write_bytes(path.read_bytes()[:-50])  # another archive under the same name is read anew
    with pytest.raises(DataError, match="not a whole zip"):
        find_parts([str(path)])


def test_a_file_that_is_not_where_the_directory_says(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.jsonl", LINES)
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    with pytest.raises(DataError, match="could not be unpacked"):
        values(path)


def test_a_way_of_packing_that_python_does_not_know(tmp_path):
    """Windows packs files of more than 2 GiB as Deflate64 (method 9)."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.jsonl", LINES)
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\x01\x02") + 10] = 9
    path.write_bytes(data)
    with pytest.raises(DataError, match="could not be unpacked"):
        values(path)


def test_damaged_and_encrypted_archives(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="not a whole zip"):
        find_parts([str(path)])
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("readme.png", b"x")
    with pytest.raises(DataError, match="holds no data file"):
        find_parts([str(path)])


def test_dataset_folders_as_the_hub_and_the_library_lay_them_out(tmp_path):
    import datasets

    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(tmp_path / "dict")
    (tmp_path / "hub" / "data").mkdir(parents=True)
    for split in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        whole.to_parquet(tmp_path / "hub" / "data" / f"{split}.parquet")
    (tmp_path / "hub" / "README.md").write_text("---\nlicense: mit\n---\n")
    assert names(tmp_path / "saved") == ["data-00000-of-00001.arrow"]
    assert names(tmp_path / "dict") == ["train/data-00000-of-00001.arrow"]
    assert names(tmp_path / "hub") == [f"data/train-0000{n}-of-00002.parquet" for n in (0, 1)]
    left = find_parts([str(tmp_path / "hub")]).left_out
    assert any("split validation" in why for why in left.values())
    for folder in ("saved", "dict"):
        [part] = find_parts([str(tmp_path / folder)]).parts
        assert [row.values for row in table_rows(part)] == ROWS


def test_hub_names_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_OFFLINE", "1")
    with pytest.raises(SetupError, match="no network is wanted"):
        find_parts(["hf://datasets/nobody/nothing-there@main"])
    with pytest.raises(UsageError, match="no address of a dataset"):
        find_parts(["hf://datasets/../../etc"])


def test_hub_names_are_found_in_the_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    commit = "a" * 40
    root = tmp_path / "datasets--owner--name"
    (root / "snapshots" / commit / "data").mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots" / commit / "data" / "train.jsonl").write_bytes(LINES)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    for address in ("hf://datasets/owner/name", f"hf://datasets/owner/name@{commit}"):
        [part] = find_parts([address]).parts
        assert part.path.name == "train.jsonl"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "cp1252", "shift_jis"])
def test_other_encodings_where_the_recipe_names_them(tmp_path, encoding, make_tokenizer):
    said = "日本語" if encoding == "shift_jis" else "Größe"
    path = tmp_path / "a.jsonl"
    path.write_bytes((json.dumps({"prompt": said, "completion": "b"}, ensure_ascii=False) + "\n").encode(encoding) * 1)
    rows = [row.values for row in read_rows(path, encoding)]
    assert rows == [{"prompt": said, "completion": "b"}]
    data = DataSection(files=[str(path)], encoding=encoding, validation_share=0.0)
    assert prepare(Recipe(data=data), make_tokenizer()).facts.rows == 1


def test_markdown_splits_at_headings_outside_code(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("Before.\n\n# One\ntext\n```\n# code\n```\n### Third\nmore\n\n## Two\nend\n")
    found = [(row.number, row.values["text"]) for row in read_rows(path)]
    assert found == [(1, "Before."), (3, "# One\ntext\n```\n# code\n```\n### Third\nmore"), (11, "## Two\nend")]
