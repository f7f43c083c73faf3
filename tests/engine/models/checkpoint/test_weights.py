"""Checkpoints read in pieces: right numbers, little memory, and damaged files refused by name."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.safetensors_header import stored_tensors
from burnish_engine.models.checkpoint.weights import Checkpoint


def random_tensors(dtype=torch.float32):
    made = torch.Generator().manual_seed(0)
    shapes = {"matrix": (37, 24), "wide": (3, 1000), "vector": (24,), "cube": (4, 3, 8), "scalar": (), "empty": (0, 8)}
    return {name: torch.randn(shape, generator=made).to(dtype) for name, shape in shapes.items()}


def save(folder, tensors):
    folder.mkdir(exist_ok=True, parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_sharded(folder, shards):
    folder.mkdir(exist_ok=True, parents=True)
    places = {}
    for number, tensors in enumerate(shards):
        name = f"model-{number}.safetensors"
        save_file(tensors, folder / name)
        places |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


@pytest.mark.parametrize("piece_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_type_becomes_every_other(stored, to, piece_bytes, tmp_path):
    tensors = random_tensors(stored)
    with Checkpoint(save(tmp_path, tensors), piece_bytes) as checkpoint:
        for name, value in tensors.items():
            found = torch.full(value.shape, float("nan"), dtype=to)
            checkpoint.read_into(name, found)
            assert torch.equal(found, value.to(to)), name
            assert torch.equal(checkpoint.read(name), value)


def test_parts_of_something_larger(tmp_path):
    tensors = random_tensors()
    with Checkpoint(save(tmp_path, tensors), piece_bytes=400) as checkpoint:
        buffer = torch.full((50, 40), float("nan"))
        checkpoint.read_into("matrix", buffer[5:42, 8:32])
        assert torch.equal(buffer[5:42, 8:32], tensors["matrix"])
        assert buffer.isnan().sum() == 50 * 40 - 37 * 24
        checkpoint.read_into("matrix", buffer[:7, :24], rows=slice(30, 37))
        assert torch.equal(buffer[:7, :24], tensors["matrix"][30:])
        turned = torch.zeros(24, 37)
        checkpoint.read_into("matrix", turned.T)
        assert torch.equal(turned.T, tensors["matrix"])
        checkpoint.read_into("vector", buffer[:24, 39])
        assert torch.equal(buffer[:24, 39], tensors["vector"])
        parameter = torch.nn.Parameter(torch.zeros(3, 8, 4))
        checkpoint.read_into("cube", parameter.permute(2, 0, 1))
        assert torch.equal(parameter.detach().permute(2, 0, 1), tensors["cube"])
        with pytest.raises(ValueError, match="step"):
            checkpoint.read_into("matrix", torch.zeros(19, 24), rows=slice(0, 37, 2))


def test_a_sharded_checkpoint(tmp_path):
    tensors = random_tensors()
    first = {name: tensors[name] for name in ("matrix", "wide")}
    second = {name: tensors[name] for name in tensors if name not in first}
    with Checkpoint(save_sharded(tmp_path, [first, second])) as checkpoint:
        assert set(checkpoint.names()) == set(tensors)
        for name, value in tensors.items():
            assert torch.equal(checkpoint.read(name), value)
        assert "matrix" in checkpoint and "other" not in checkpoint
        assert (checkpoint.shape("cube"), checkpoint.dtype("cube")) == ((4, 3, 8), "F32")


def test_a_single_file_goes_before_an_index_as_in_transformers(tmp_path):
    save_sharded(tmp_path, [{"a": torch.zeros(2)}])
    save(tmp_path, {"a": torch.ones(2)})
    with Checkpoint(tmp_path) as checkpoint:
        assert torch.equal(checkpoint.read("a"), torch.ones(2))


def test_what_is_missing_or_of_another_shape_is_said_before_loading(tmp_path):
    with Checkpoint(save(tmp_path, {"a": torch.zeros(2, 3), "b": torch.zeros(2, dtype=torch.uint8)})) as checkpoint:
        checkpoint.require({"a": (2, 3)})
        with pytest.raises(SetupError, match="lack 2 tensors, first c"):
            checkpoint.require({"a": (2, 3), "c": (1,), "d": (1,)})
        with pytest.raises(SetupError, match=r"a in .*safetensors has the shape \[2, 3\]; config.json says \[3, 2\]"):
            checkpoint.require({"a": (3, 2)})
        with pytest.raises(SetupError, match="stored as U8"):
            checkpoint.require({"b": (2,)})
        with pytest.raises(SetupError, match="stored as U8"):
            checkpoint.read_into("b", torch.zeros(2))
        with pytest.raises(SetupError, match="lack the tensor c"):
            checkpoint.read("c")
        with pytest.raises(SetupError, match=r"\[2, 3\] where \[2, 4\]"):
            checkpoint.read_into("a", torch.zeros(2, 4))
        with pytest.raises(SetupError, match=r"\[1, 3\] where \[2, 3\]"):
            checkpoint.read_into("a", torch.zeros(2, 3), rows=slice(1, 2))


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(SetupError, match="neither"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "/etc/x.safetensors", "C:\\x.safetensors", "model.bin", "a\\..\\b"]
)
def test_an_index_that_leads_elsewhere(name, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(SetupError, match="not a safetensors file inside"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 3}}', '{"weight_map": ["a"]}']
)
def test_an_index_without_a_map(text, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(SetupError, match="weight_map"):
        Checkpoint(tmp_path)


def test_an_index_that_promises_too_much(tmp_path):
    save_sharded(tmp_path, [{"a": torch.zeros(2)}])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-0.safetensors", "b": "model-0.safetensors"}}))
    with pytest.raises(SetupError, match="'b' in model-0"):
        Checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "model-7.safetensors"}}))
    with pytest.raises(SetupError, match=r"model-7\.safetensors cannot be read"):
        Checkpoint(tmp_path)


def write(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_a_whole_file(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry(offsets=(8, 16)),
        "a": entry(),
        "none": entry(shape=(0,), offsets=(8, 8)),
    }
    file = write(tmp_path / "x.safetensors", header, bytes(16))
    found = stored_tensors(file)
    start = file.stat().st_size - 16
    assert {name: (one.start - start, one.end - start) for name, one in found.items()} == {
        "a": (0, 8),
        "b": (8, 16),
        "none": (8, 8),
    }


@pytest.mark.parametrize(
    ("header", "data", "length"),
    [
        (b"", b"", 0),
        (b"{}", b"", 3),
        (b"{}", b"", 2**63),
        (b"{}", b"x", None),
        (b"[]", b"", None),
        (b"\xff\xfe", b"", None),
        (b"[" * 200_000, b"", None),
        (b'{"a": ' * 20_000, b"", None),
        ({"a": 3}, b"", None),
        ({"a": {}}, b"", None),
        ({"a": entry("F31")}, bytes(8), None),
        ({"a": entry(["F32"])}, bytes(8), None),
        ({"a": entry(shape=(3,))}, bytes(8), None),
        ({"a": entry(shape=(-1, -2))}, bytes(8), None),
        ({"a": entry(shape=(2.0,))}, bytes(8), None),
        ({"a": entry(shape=(True, 2))}, bytes(8), None),
        ({"a": entry(shape=("2",))}, bytes(8), None),
        ({"a": entry(shape=[2] + [1] * 100)}, bytes(8), None),
        ({"a": entry(shape=(2**40, 2**40))}, bytes(8), None),
        ({"a": entry(shape=(2**70,))}, bytes(8), None),
        ({"a": entry(offsets=(0, 8, 8))}, bytes(8), None),
        ({"a": entry(offsets=(8, 0))}, bytes(8), None),
        ({"a": entry(offsets=(-8, 0))}, bytes(8), None),
        ({"a": entry(offsets=(8, 16))}, bytes(16), None),  # a gap before it
        ({"a": entry()}, bytes(7), None),  # past the end
        ({"a": entry()}, bytes(9), None),  # bytes of no tensor
        ({"a": entry(), "b": entry()}, bytes(8), None),  # twice the same bytes
        ({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12), None),  # overlapping
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
         bytes(8), None),
        (b'{"a":{"dtype":"F32","shape":[' + b"9" * 10_000 + b'],"data_offsets":[0,8]}}', bytes(8), None),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_by_name(header, data, length, tmp_path):
    write(tmp_path / "model.safetensors", header, data, length)
    with pytest.raises(SetupError, match=r"model\.safetensors is damaged") as caught:
        Checkpoint(tmp_path)
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


def test_a_file_too_short_for_a_length(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x02\x00")
    with pytest.raises(SetupError, match="damaged"):
        Checkpoint(tmp_path)


def test_a_file_that_shrinks_after_it_was_opened(tmp_path):
    with Checkpoint(save(tmp_path, {"a": torch.zeros(1000)})) as checkpoint:
        with (tmp_path / "model.safetensors").open("r+b") as file:
            file.truncate(500)
        with pytest.raises(SetupError, match="ends within a"):
            checkpoint.read("a")


MEASURE = """
import resource, sys, torch
from pathlib import Path
from burnish_engine.models.checkpoint.weights import Checkpoint

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

destination = torch.ones(3, 50_000_000 // 1000, 1000, dtype=torch.bfloat16)  # 300 MB, touched
torch.empty(0).to(torch.float32)
before = peak()
with Checkpoint(Path(sys.argv[1])) as checkpoint:
    for number in range(3):
        checkpoint.read_into(f"matrix.{number}", destination[number])
print(peak() - before, destination.float().mean().item())
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="the peak is read through getrusage")
def test_loading_takes_no_second_copy(tmp_path):
    made = torch.Generator().manual_seed(0)
    shards = [
        {f"matrix.{number}": torch.randint(0, 3, (50_000, 1000), generator=made, dtype=torch.int8).bfloat16()}
        for number in range(3)
    ]
    save_sharded(tmp_path, shards)
    mean = sum(shard[f"matrix.{number}"].float().mean().item() for number, shard in enumerate(shards)) / 3
    del shards
    result = subprocess.run([sys.executable, "-c", MEASURE, tmp_path], capture_output=True, text=True, check=True)
    growth, found = result.stdout.split()
    assert float(found) == pytest.approx(mean, rel=1e-3)
    assert int(growth) < 64 * 2**20, f"{int(growth) / 2**20:.0f} MiB"


@pytest.mark.gpu
def test_loading_to_a_gpu(tmp_path):
    tensors = random_tensors(torch.bfloat16)
    with Checkpoint(save(tmp_path, tensors), piece_bytes=500) as checkpoint:
        buffers = {name: torch.full((*value.shape[:-1], value.shape[-1] + 8), float("nan"), device="cuda")
                   for name, value in tensors.items() if value.ndim}  # fmt: skip
        for _ in range(20):  # the buffers are used again while copies from them may be on their way
            for name, buffer in buffers.items():
                checkpoint.read_into(name, buffer[..., 4:-4])
        for name, buffer in buffers.items():
            assert torch.equal(buffer[..., 4:-4].cpu(), tensors[name].float())
