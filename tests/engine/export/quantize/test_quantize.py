"""Quantizing in a worker: every type, sizes known before, fallbacks told, and every way to fail."""

import shutil
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

from burnish_engine.advise.facts.gguf_size import (
    choose_types,
    file_bytes,
    predicted_file_bytes,
    spec_shapes,
)
from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, NEED_IMPORTANCE
from burnish_engine.export.quantize import quantize as module
from burnish_engine.export.quantize.importance_file import Importance, read_importance, write_importance
from burnish_engine.export.quantize.quantize import predicted_bytes, quantize, read_back
from burnish_engine.models.checkpoint.gguf_file.header import TensorShape, read_header
from burnish_engine.models.gguf.gguf_library import quantize_file
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import make_model, rows, write_16_bit
from support.models.small_families import make_small

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="session")
def narrow_f16(talking, tmp_path_factory):
    """An F16 file with rows of 96 and 192, which do not fill blocks of 256."""
    return write_16_bit(talking, None, tmp_path_factory.mktemp("narrow"))


def even_importance(path, matrix):
    """A matrix that cares for all columns alike; its path."""
    rows = {tensor.name: tensor.row for tensor in read_header(path).tensors if tensor.type == "F16"}
    columns = {name: np.ones(row, dtype=np.float32) for name, row in rows.items() if name.startswith("blk.")}
    write_importance(Importance(columns, 10), matrix)
    return matrix


def in_process(path, target, quant, matrix=None):
    """What `quantize` makes, without a worker: its start takes longer than the work on files this small."""
    columns = read_importance(matrix) if matrix else None
    assert quantize_file(path, target, GGUF_TYPES[quant].number, 1, lambda _line: None, columns) == ""
    return read_back(target, quant, read_header(path), importance=matrix is not None)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """An F16 file of 17 layers with four query heads a key head, and an importance matrix: types differ by layer."""
    folder = tmp_path_factory.mktemp("deep")
    source = make_model(
        folder / "base", "llama", hidden_size=256, intermediate_size=256, num_hidden_layers=17, num_attention_heads=4,
        num_key_value_heads=1, tie_word_embeddings=False,
    )  # fmt: skip
    path = write_16_bit(source, None, folder)
    return path, even_importance(path, folder / "matrix")


@pytest.mark.full
@pytest.mark.parametrize(
    ("quant", "importance"),
    [
        (quant, importance)
        for quant in GGUF_TYPES
        for importance in (False, True)
        if (importance or quant not in NEED_IMPORTANCE) and (importance or "K" in quant)
    ],
)
def test_types_of_every_layer_are_predicted(deep, tmp_path, quant, importance):
    path, matrix = deep
    made = in_process(path, tmp_path / "x.gguf", quant, matrix if importance else None)
    assert made.fallbacks == []
    assert made.bytes == predicted_bytes(read_header(path), quant, importance=importance)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["LiquidAI/LFM2-350M", "microsoft/Phi-4-mini-instruct", "google/gemma-3-1b-it", "Qwen/Qwen3.5-9B, text"]
)
def test_sizes_of_other_families_are_predicted(tmp_path, name):
    path = write_16_bit(make_small(name, tmp_path / "base"), None, tmp_path)
    matrix = even_importance(path, tmp_path / "matrix")
    for quant in ("Q4_K_M", "IQ4_NL", "Q4_0", "IQ2_M", "Q2_K"):
        for importance in (matrix, None) if quant != "IQ2_M" else (matrix,):
            made = in_process(path, tmp_path / "x.gguf", quant, importance)
            assert made.bytes == predicted_bytes(read_header(path), quant, importance=importance is not None)


@pytest.mark.full
@pytest.mark.parametrize("quant", GGUF_TYPES)
def test_every_type_is_made_and_as_large_as_predicted(wide, wide_f16, tmp_path_factory, tmp_path, quant):
    target = tmp_path / f"{quant}.gguf"
    matrix = None
    if quant in NEED_IMPORTANCE:
        matrix = even_importance(wide_f16, tmp_path_factory.mktemp("matrix") / "matrix")
    made = in_process(wide_f16, target, quant, matrix)
    wanted = predicted_bytes(read_header(wide_f16), quant, importance=matrix is not None)
    assert made.bytes == target.stat().st_size == wanted
    assert GGUF_TYPES[quant].tensors in made.tensor_types
    assert made.fallbacks == []
    with GgufModel(target, threads=1) as model:
        assert model.logits(rows(wide, 1)[0][:4]).shape == (4, model.vocab_size)


@pytest.mark.full
@pytest.mark.parametrize(("quant", "weighed"), [("Q8_0", False), ("Q4_K_M", True)])
def test_the_worker_makes_the_same_file_and_tells_how_far_it_is(wide_f16, tmp_path_factory, tmp_path, quant, weighed):
    aside, shares = tmp_path_factory.mktemp("aside"), []
    matrix = even_importance(wide_f16, aside / "matrix") if weighed else None
    made = quantize(wide_f16, tmp_path / "x.gguf", quant, importance=matrix, threads=1, progress=shares.append)
    assert made == replace(in_process(wide_f16, aside / "x.gguf", quant, matrix), path=made.path)
    assert made.path.read_bytes() == (aside / "x.gguf").read_bytes()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


@pytest.mark.full
def test_replaced_types_are_told_in_words(narrow_f16, tmp_path):
    made = quantize(narrow_f16, tmp_path / "x.gguf", "Q4_K_M", threads=1)
    assert made.bytes == predicted_bytes(read_header(narrow_f16), "Q4_K_M")
    assert made.fallbacks[0] == "11 tensors became Q5_0 instead of Q4_K because rows of 96 are not divisible by 256"
    assert any("rows of 192" in line for line in made.fallbacks)
    assert read_back(tmp_path / "x.gguf", "Q4_K_M").fallbacks == made.fallbacks  # also without the 16-bit file


def test_rows_that_fill_no_block_are_refused_before_the_start():
    shapes = [TensorShape("token_embd.weight", (10, 48)), TensorShape("blk.0.attn_q.weight", (48, 48))]
    with pytest.raises(UsageError, match=r"rows of 48 numbers, which do not fill Q8_0's blocks of 32"):
        choose_types(shapes, "Q8_0")
    assert [one.given for one in choose_types(shapes[1:], "Q4_K_M")] == ["F16"]


def test_sizes_from_a_spec_alone():
    smollm2 = DecoderSpec(
        family="llama", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_heads=9, num_kv_heads=3,
        head_dim=64, layers=[LayerSpec()] * 30, max_context=8192, tied_embeddings=True,
    )  # fmt: skip
    # Files of SmolLM2-135M-Instruct that llama.cpp made, bytes.
    real = {"F16": 270885984, "Q8_0": 144811104, "Q6_K": 138382944, "Q5_K_M": 112103520, "Q4_K_M": 105454176,
            "Q4_K_S": 102039648, "Q4_0": 91726944, "IQ4_XS": 91312224}  # fmt: skip
    for quant, size in real.items():
        assert abs(predicted_file_bytes(smollm2, quant) / size - 1) < 0.005
    llama_1b = DecoderSpec(
        family="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_heads=32, num_kv_heads=8,
        head_dim=64, layers=[LayerSpec()] * 16, max_context=131072, tied_embeddings=True,
    )  # fmt: skip
    # Llama-3.2-1B-Instruct as published: Q8_0 1.32 GB, Q4_K_M 0.81 GB.
    assert abs(predicted_file_bytes(llama_1b, "Q8_0") / 1.32e9 - 1) < 0.03
    assert abs(predicted_file_bytes(llama_1b, "Q4_K_M") / 0.81e9 - 1) < 0.03
    mixture = llama_1b.model_copy(update={"num_experts": 8})
    assert predicted_file_bytes(mixture, "Q8_0") is None


def test_the_specs_tensors_are_the_files(wide, wide_f16):
    names = {(tensor.name, tensor.shape) for tensor in read_header(wide_f16).tensors}
    assert names == {(tensor.name, tensor.shape) for tensor in spec_shapes(wide.spec)}
    types = choose_types(spec_shapes(wide.spec), "F16")
    assert file_bytes(types, read_header(wide_f16).data_start) == wide_f16.stat().st_size


def test_no_space_is_told_before_the_start_with_both_numbers(wide_f16, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**9, 10**9, 12345))
    with pytest.raises(NoSpaceError, match=r"Q8_0 file needs \d+ bytes .*; 12345 bytes .* are free") as caught:
        quantize(wide_f16, tmp_path / "x.gguf", "Q8_0")
    assert caught.value.exit_code == 15
    assert not list(tmp_path.iterdir())


def worker(monkeypatch, code):
    """Put another process in the worker's place; it gets the same arguments."""
    monkeypatch.setattr(module, "worker_command", lambda arguments: [sys.executable, "-c", code, *arguments])


def test_a_disk_that_fills_on_the_way_is_no_space(wide_f16, tmp_path, monkeypatch):
    answers = iter([Usage(10**9, 0, 10**9), Usage(10**9, 10**9, 7)])
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: next(answers))
    worker(monkeypatch, 'print(\'{"error": "basic_ios::clear: iostream error"}\'); raise SystemExit(1)')
    with pytest.raises(NoSpaceError, match="became full"):
        quantize(wide_f16, tmp_path / "x.gguf", "Q8_0")
    assert not list(tmp_path.iterdir())


def test_a_worker_that_dies_is_told(wide_f16, tmp_path, monkeypatch):
    worker(monkeypatch, "import os, sys; open(sys.argv[2], 'w').write('half'); sys.stderr.write('boom\\n'); os.abort()")
    with pytest.raises(SetupError, match=r"was ended by signal 6: boom") as caught:
        quantize(wide_f16, tmp_path / "x.gguf", "Q8_0")
    assert "out of memory" in caught.value.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_llama_cpps_own_words_reach_the_person(wide_f16, tmp_path):
    broken = tmp_path / "broken.gguf"
    whole = wide_f16.read_bytes()
    broken.write_bytes(whole[: len(whole) - 200_000])
    with pytest.raises(SetupError, match=r"could not quantize the file: .*not within the file bounds"):
        quantize(broken, tmp_path / "x.gguf", "Q8_0", threads=1)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.gguf"]


def test_stray_output_of_libraries_is_ignored(wide_f16, tmp_path, monkeypatch):
    worker(
        monkeypatch,
        'import shutil, sys; print(\'hello\\n[]\\n{"tensor": "x"}\\n{"tensor": 1, "of": 2}\');'
        "shutil.copy(sys.argv[1], sys.argv[2])",
    )
    shares = []
    quantize(wide_f16, tmp_path / "x.gguf", "F16", progress=shares.append)
    assert shares == [0.5]


@pytest.mark.timeout(300)  # the worker sleeps longer
def test_cancelling_ends_the_worker_at_once(wide_f16, tmp_path, monkeypatch):
    worker(
        monkeypatch,
        "import sys, time; open(sys.argv[2], 'w').write('half'); print('{\"tensor\": 1, \"of\": 9}', flush=True);"
        "time.sleep(600)",
    )
    shares = []
    with pytest.raises(StoppedError) as caught:
        quantize(wide_f16, tmp_path / "x.gguf", "Q8_0", progress=shares.append, canceled=lambda: bool(shares))
    assert caught.value.exit_code == 20
    assert not list(tmp_path.iterdir())


# A parent that starts the worker, whose quantizer reads standard input, reports how much it found there, and is stuck.
STUCK = """
import subprocess, sys
worker = '''
import sys, time
from burnish_engine.export.quantize import quantize_worker
from burnish_engine.models.gguf import gguf_library

def stuck(*arguments):
    print(f"found {len(sys.stdin.read())} characters", flush=True)
    time.sleep(60)
    print("lives on", flush=True)

gguf_library.quantize_file = stuck
quantize_worker.main(sys.argv[1:])
'''
subprocess.Popen([sys.executable, "-c", worker, *sys.argv[1:]], stdin=subprocess.PIPE).wait()
"""


@pytest.mark.full
@pytest.mark.timeout(300)  # that of a worker which waits for its input, or outlives its parent
def test_the_worker_finds_standard_input_empty_and_ends_with_a_parent_that_is_killed(wide_f16, tmp_path):
    command = [sys.executable, "-c", STUCK, str(wide_f16), str(tmp_path / "x.gguf"), "7", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "found 0 characters\n"
        parent.kill()
        assert parent.stdout.read() == ""  # until the worker, which has the same output, has ended too


def test_too_little_memory_is_told_before_the_start(wide_f16, tmp_path, monkeypatch):
    monkeypatch.setattr("burnish_engine.export.base.staging.host_memory", lambda: (10**9, 10**6))
    with pytest.raises(DoesNotFitError, match=r"Making Q8_0 needs [\d.]+ \w+ of memory; .* are free") as caught:
        quantize(wide_f16, tmp_path / "x.gguf", "Q8_0")
    assert caught.value.exit_code == 10
    assert not list(tmp_path.iterdir())
