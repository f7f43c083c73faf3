"""Codes chosen anew: block layouts, the choice itself, second moments, and whole files refined with them."""

import itertools

import numpy as np
import pytest
import torch
from gguf import GGUFReader

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.contract.errors import StoppedError
from burnish_engine.export.gguf.block_formats import BLOCK_FORMATS, Grid, dequantize, grid, pack, unpack
from burnish_engine.export.job import export_gguf
from burnish_engine.export.preflight import forecast_gguf
from burnish_engine.export.quantize import gptq, hessian, importance
from burnish_engine.export.quantize.gptq import output_error, refine, round_columns, upper_cholesky
from burnish_engine.export.quantize.hessian import hessian_bytes, hessian_sizes, input_name, refine_file
from burnish_engine.export.quantize.importance import compute_importance
from burnish_engine.export.quantize.importance_file import write_importance
from burnish_engine.export.quantize.quantize import quantize, quantizing_bytes
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map
from burnish_engine.models.gguf.gguf_library import quantize_file
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, gguf_kl, rows, tuned_model
from support.models.small_families import make_small

pytestmark = pytest.mark.usefixtures("short_replies")

FTYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25,
    "IQ4_XS": 30,
}  # fmt: skip
WEIGHT = "blk.1.ffn_gate.weight"


def names_of(source):
    return name_map(gguf_rules(source.config["model_type"]), source.spec.num_layers)


def tensors(path):
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


@pytest.fixture(scope="module")
def quantized(wide_f16, tmp_path_factory):
    """Type to a weight's bytes as llama.cpp makes them."""
    folder, found = tmp_path_factory.mktemp("quantized"), {}
    for kind, ftype in FTYPES.items():
        assert quantize_file(wide_f16, folder / kind, ftype, 1, lambda _line: None) == ""
        tensor = tensors(folder / kind)[WEIGHT]
        assert tensor.tensor_type.name == kind
        found[kind] = np.array(tensor.data)
    return found


@pytest.fixture(scope="module")
def weights(wide_f16):
    return dequantize(tensors(wide_f16)[WEIGHT].data, "F16")


def some_moment(columns, seed=0):
    """Of inputs that go together, one of them far stronger."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4 * columns, columns)) @ rng.normal(size=(columns, columns)) / columns**0.5
    x[:, columns // 2] *= 30
    return (x.T @ x / len(x)).astype(np.float32)


@pytest.fixture(scope="module")
def gathered(wide, wide_adapter, tmp_path_factory):
    """An importance matrix as a file, and the folder of second moments."""
    folder = tmp_path_factory.mktemp("gathered")
    model = tuned_model(wide, wide_adapter)
    found = compute_importance(model, rows(wide, 8), names_of(wide), tokens=10_000, hessians=folder / "moments")
    write_importance(found, folder / "matrix")
    return folder / "matrix", folder / "moments"


@pytest.mark.full
@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_codes_are_unpacked_and_packed_as_llama_cpp_does(quantized, kind):
    data = quantized[kind]
    codes = unpack(data, kind)
    assert codes.shape == (512, 256)
    assert codes.max() < BLOCK_FORMATS[kind].levels
    assert np.array_equal(pack(codes, data, kind), data)
    other = np.random.default_rng(0).integers(0, BLOCK_FORMATS[kind].levels, codes.shape, dtype=np.uint8)
    assert np.array_equal(unpack(pack(other, data, kind), kind), other)
    allowed = grid(data, kind)
    values = (
        np.repeat(allowed.offset, allowed.group, 1)
        + np.repeat(allowed.scale, allowed.group, 1) * (allowed.levels[other])
    )
    found = dequantize(pack(other, data, kind), kind)
    np.testing.assert_allclose(values, found, rtol=1e-5, atol=1e-6 * np.abs(found).max())


@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_the_layers_output_comes_nearer(quantized, weights, kind):
    upper, data = upper_cholesky(some_moment(256)), quantized[kind]
    before = output_error(weights, dequantize(data, kind), upper)
    after = output_error(weights, dequantize(refine(weights, data, kind, upper), kind), upper)
    assert (after <= before).all()
    assert after.sum() < 0.7 * before.sum()


def test_a_row_that_would_get_worse_keeps_its_codes(quantized, weights, monkeypatch):
    upper, data = upper_cholesky(some_moment(256)), quantized["Q4_0"]
    best = unpack(refine(weights, data, "Q4_0", upper), "Q4_0")
    best[::2] = 0
    monkeypatch.setattr(gptq, "round_columns", lambda *_: best)
    found = unpack(refine(weights, data, "Q4_0", upper), "Q4_0")
    assert np.array_equal(found[::2], unpack(data, "Q4_0")[::2])
    assert np.array_equal(found[1::2], best[1::2])


def test_the_choice_is_near_the_best_of_all():
    """Six columns of four levels that go together: all 4,096 choices are tried."""
    rng, columns = np.random.default_rng(1), 6
    hessian = np.full((columns, columns), 0.9, np.float32) + 0.1 * np.diag(np.arange(1, 7, dtype=np.float32))
    upper = upper_cholesky(hessian)
    levels = np.arange(4, dtype=np.float32)
    every = np.array(list(itertools.product(levels, repeat=columns)), dtype=np.float32)
    chosen, rounded, best = [], [], []
    for _ in range(30):
        row = rng.uniform(0, 3, (1, columns)).astype(np.float32)
        even = Grid(np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32), levels, columns)
        chosen.append(output_error(row, round_columns(row, even, upper).astype(np.float32), upper)[0])
        rounded.append(output_error(row, np.rint(row), upper)[0])
        best.append(output_error(row, every, upper).min())
    assert (np.array(chosen) >= np.array(best) * 0.999).all()
    assert np.mean(chosen) - np.mean(best) < 0.3 * (np.mean(rounded) - np.mean(best))


def test_without_anything_in_common_columns_are_rounded_to_the_nearest(quantized, weights):
    for kind in ("Q5_0", "IQ4_NL"):
        allowed = grid(quantized[kind], kind)
        codes = round_columns(weights, allowed, upper_cholesky(np.eye(256, dtype=np.float32)))
        steps = (
            np.repeat(allowed.scale, 32, 1)[..., None] * allowed.levels + np.repeat(allowed.offset, 32, 1)[..., None]
        )
        distance = np.abs(steps - weights[..., None])
        np.testing.assert_allclose(
            np.take_along_axis(distance, codes[..., None], 2)[..., 0], distance.min(2), atol=1e-6
        )


def test_the_root_is_the_moments_and_needs_one():
    hessian = some_moment(64)
    upper = upper_cholesky(hessian).astype(np.float64)
    assert np.array_equal(upper, np.triu(upper))
    damped = hessian + np.eye(64) * 0.01 * np.diag(hessian).mean()
    np.testing.assert_allclose(upper @ upper.T, damped, rtol=1e-3, atol=1e-5 * damped.max())
    assert np.isfinite(upper_cholesky(np.zeros((4, 4), np.float32))).all()
    with pytest.raises(np.linalg.LinAlgError):
        upper_cholesky(np.full((4, 4), np.nan, np.float32))


@pytest.mark.full
def test_moments_are_those_of_what_goes_in(wide, wide_adapter, gathered):
    model, seen = tuned_model(wide, wide_adapter), []
    layer = model.base_model.model.model.layers[1].mlp.down_proj.base_layer
    layer.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0][0].double()))
    with torch.no_grad():
        for row in rows(wide, 8):
            model(torch.tensor([row]))
    x = torch.cat(seen).numpy()
    wanted = upper_cholesky((x.T @ x / len(x)).astype(np.float32))
    found = np.load(gathered[1] / "blk.1.ffn_down.npy")
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.full
def test_little_memory_takes_more_passes_and_gives_the_same(
    wide, wide_adapter, wide_f16, gathered, tmp_path, monkeypatch
):
    passes, model = [], tuned_model(wide, wide_adapter)
    model.get_input_embeddings().register_forward_pre_hook(lambda *_: passes.append(1))
    monkeypatch.setattr(importance, "MOST_HESSIAN_BYTES", hessian_bytes([512, 256]))
    shares, few = [], rows(wide, 8)
    compute_importance(
        model, few, names_of(wide), tokens=10_000, hessians=tmp_path, progress=lambda _what, share: shares.append(share)
    )
    inputs = hessian_sizes(read_header(wide_f16).tensors)
    layers = wide.spec.num_layers
    assert len(inputs) == 4 * layers == len(list(tmp_path.iterdir()))
    assert len(few) < len(passes) < 4 * layers * len(few)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == hessian_bytes(inputs.values()) + 128 * len(inputs)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (gathered[1] / path.name).read_bytes()


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "LiquidAI/LFM2-350M",
        "microsoft/Phi-4-mini-instruct",
        "google/gemma-3-270m",
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3.5-9B, text",
    ],
)
def test_layers_that_share_a_moment_read_the_same(name, tmp_path):
    source = make_small(name, tmp_path / "base")
    found = compute_importance(load_base(source, "fp32", CPU), [[5, 6, 7, 8]], names_of(source), tokens=100)
    assert all(input_name(weight) for weight in found.columns)
    for weight, columns in found.columns.items():
        first = next(other for other in found.columns if input_name(other) == input_name(weight))
        assert np.array_equal(columns, found.columns[first])


def test_rows_that_are_too_long_have_no_moment(wide, wide_f16, tmp_path, monkeypatch):
    for module in (hessian, importance):
        monkeypatch.setattr(module, "LONGEST_INPUT", 256)
    compute_importance(load_base(wide, "fp32", CPU), rows(wide, 1), names_of(wide), tokens=50, hessians=tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(hessian_sizes(read_header(wide_f16).tensors))
    assert not [path for path in tmp_path.iterdir() if "ffn_down" in path.name]


def test_a_moment_without_a_root_leaves_the_diagonal(wide, tmp_path, monkeypatch):
    def write(folder, name, values):
        hessian.write_hessian(folder, name, values * (float("nan") if name == "blk.0.attn_q" else 1))

    monkeypatch.setattr(importance, "write_hessian", write)
    model = load_base(wide, "fp32", CPU)
    found = compute_importance(model, rows(wide, 1), names_of(wide), tokens=50, hessians=tmp_path)
    assert "blk.0.attn_q.weight" in found.columns
    written = {path.stem for path in tmp_path.iterdir()}
    assert "blk.0.attn_q" not in written
    assert "blk.1.attn_q" in written


@pytest.mark.full
@pytest.mark.parametrize("quant", ["Q4_K_M", "IQ4_NL"])
def test_a_file_of_the_worker_is_nearer_in_every_layer(wide, wide_adapter, wide_f16, gathered, tmp_path, quant):
    matrix, folder = gathered
    shares = []
    plain = quantize(wide_f16, tmp_path / "plain.gguf", quant, importance=matrix, threads=1)
    made = quantize(
        wide_f16, tmp_path / "x.gguf", quant, importance=matrix, hessians=folder, threads=1, progress=shares.append
    )
    assert (made.bytes, made.tensor_types, made.fallbacks) == (plain.bytes, plain.tensor_types, [])
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    exact, one, other = tensors(wide_f16), tensors(plain.path), tensors(made.path)
    for name, tensor in one.items():
        if not input_name(name):
            assert np.array_equal(tensor.data, other[name].data)
            continue
        upper, kind = np.load(folder / f"{input_name(name)}.npy"), tensor.tensor_type.name
        weights = dequantize(exact[name].data, "F16")
        errors = [output_error(weights, dequantize(file[name].data, kind), upper).sum() for file in (one, other)]
        assert errors[1] < 0.8 * errors[0]
    model, row = tuned_model(wide, wide_adapter), rows(wide, 1)[0]
    assert gguf_kl(made.path, model, row) < gguf_kl(plain.path, model, row)


@pytest.mark.full
def test_moments_without_a_matrix_are_not_used(wide_f16, gathered, tmp_path):
    for name, folder in (("a", None), ("b", gathered[1])):
        quantize(wide_f16, tmp_path / name, "Q4_0", hessians=folder, threads=1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.full
def test_refining_can_be_canceled_between_tensors(wide_f16, gathered, tmp_path):
    shares = []
    with pytest.raises(StoppedError):
        quantize(
            wide_f16, tmp_path / "x.gguf", "Q4_0", importance=gathered[0], hessians=gathered[1], threads=1,
            progress=shares.append, canceled=lambda: bool(shares) and shares[-1] > 0.25,
        )  # fmt: skip
    assert shares[-1] < 1.0
    assert not list(tmp_path.iterdir())


def test_tensors_without_a_moment_stay(wide_f16, gathered, tmp_path):
    path, told = tmp_path / "x.gguf", []
    assert quantize_file(wide_f16, path, FTYPES["Q4_0"], 1, lambda _line: None) == ""
    before = path.read_bytes()
    assert refine_file(wide_f16, path, tmp_path / "none", lambda *done: told.append(done)) == 0
    assert path.read_bytes() == before
    assert told == []


def test_memory_for_roots_is_counted(wide_f16):
    header = read_header(wide_f16)
    assert quantizing_bytes(header, refined=True) > quantizing_bytes(header) + 4 * 512 * 512


@pytest.mark.full
def test_moments_are_in_the_forecast(wide, wide_adapter, wide_f16):
    size = hessian_bytes(hessian_sizes(read_header(wide_f16).tensors).values())
    for quant, wanted in (("Q4_0", size), ("Q8_0", 0)):
        forecast = forecast_gguf(wide, wide_adapter, "x", [quant], importance_tokens=512)
        running = next(stage for stage in forecast.stages if stage.what == "Running the trained model")
        assert running.disk_bytes == wanted
    without = forecast_gguf(wide, wide_adapter, "x", ["Q4_0"])
    with_it = forecast_gguf(wide, wide_adapter, "x", ["Q4_0"], importance_tokens=512)
    making = [next(one for one in each.stages if one.what == "Making Q4_0") for each in (without, with_it)]
    assert making[1].seconds > making[0].seconds
    assert making[1].memory_bytes > making[0].memory_bytes


@pytest.mark.full
def test_an_export_says_that_codes_were_chosen_anew(wide, wide_adapter, tmp_path):
    options = ReferenceOptions(training=rows(wide, 12), tokens=512)
    report = export_gguf(
        ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), options=options, threads=1), tmp_path, "x", ["Q4_K_M"]
    )
    assert report.passed
    assert any(note.startswith("Q4_K_M: quantized by llama.cpp") for note in report.notes)
    assert not list(tmp_path.glob("**/*.npy"))
