"""The importance matrix: what the hooks sum, the file llama.cpp reads, and that quantizing gets closer with it."""

from functools import partial

import numpy as np
import pytest
import torch
from gguf import GGUFReader

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.contract.errors import SetupError, StoppedError, UsageError
from burnish_engine.export.quantize.gptq import DAMPING
from burnish_engine.export.quantize.importance import compute_importance, spread
from burnish_engine.export.quantize.importance_file import Importance, read_importance, write_importance
from burnish_engine.export.quantize.quantize import quantize, read_back
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map
from burnish_engine.models.checkpoint.gguf_file.value_heads import column_order
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, gguf_kl, rows, tuned_model, write_16_bit
from support.models.small_families import make_small


def names_of(source):
    return name_map(gguf_rules(source.config["model_type"]), source.spec.num_layers)


@pytest.fixture(scope="module")
def measured(wide, wide_adapter):
    return compute_importance(tuned_model(wide, wide_adapter), rows(wide, 8), names_of(wide), tokens=10_000)


@pytest.mark.full
def test_every_linear_layer_but_the_head_is_measured(measured, wide, wide_f16):
    from burnish_engine.models.checkpoint.gguf_file.header import read_header

    weights = {tensor.name: tensor.row for tensor in read_header(wide_f16).tensors if tensor.type == "F16"}
    del weights["token_embd.weight"]
    assert {name: len(columns) for name, columns in measured.columns.items()} == weights
    assert measured.tokens == sum(map(len, rows(wide, 8)))


@pytest.mark.full
def test_the_numbers_are_mean_squares_of_what_goes_in(wide, wide_adapter, measured):
    model = tuned_model(wide, wide_adapter)
    seen = []
    layer = model.base_model.model.model.layers[0].input_layernorm
    handle = layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output[0].double()))
    with torch.no_grad():
        for row in rows(wide, 8):
            model(torch.tensor([row]))
    handle.remove()
    wanted = torch.cat(seen).square().mean(0).float().numpy()
    np.testing.assert_allclose(measured.columns["blk.0.attn_q.weight"], wanted, rtol=1e-6)
    np.testing.assert_allclose(measured.columns["blk.0.attn_v.weight"], wanted, rtol=1e-6)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "name", ["LiquidAI/LFM2-350M", "microsoft/Phi-4-mini-instruct", "google/gemma-3-270m", "Qwen/Qwen3.5-9B, text"]
)
def test_every_family_has_numbers_for_every_quantized_weight(name, tmp_path):
    from burnish_engine.models.checkpoint.gguf_file.header import read_header

    source = make_small(name, tmp_path / "base")
    found = compute_importance(load_base(source, "fp32", CPU), [[5, 6, 7, 8]], names_of(source), tokens=100)
    tensors = read_header(write_16_bit(source, None, tmp_path)).tensors
    weights = {tensor.name: tensor.row for tensor in tensors if tensor.type == "F16"}
    weights = {name: row for name, row in weights.items() if name not in {"token_embd.weight", "output.weight"}}
    assert {name: len(columns) for name, columns in found.columns.items()} == weights


@torch.no_grad()
def test_numbers_of_columns_have_the_order_of_the_file(tmp_path):
    """The error of an output is the same in the file's order of columns as in the model's."""
    source = make_small("Qwen/Qwen3.5-9B, text", tmp_path / "base")
    model, seen, row = load_base(source, "fp32", CPU), [], list(range(5, 25))
    layer = model.model.layers[0].linear_attn.out_proj
    layer.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0][0].double().numpy()))
    order = partial(column_order, source.spec)
    found = compute_importance(
        model, [row], names_of(source), tokens=100, columns=order, hessians=tmp_path / "hessians"
    )
    path = write_16_bit(source, None, tmp_path, kind="F32")
    held = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    theirs, ours, inputs = held["blk.0.ssm_out.weight"].astype(np.float64), layer.weight.double().numpy(), seen[0]
    assert not np.array_equal(theirs, ours)
    squares = found.columns["blk.0.ssm_out.weight"].astype(np.float64)
    np.testing.assert_allclose(theirs**2 @ squares, ours**2 @ (inputs**2).mean(0), rtol=1e-5)
    upper = np.load(tmp_path / "hessians" / "blk.0.ssm_out.npy").astype(np.float64)
    outputs = ((ours @ inputs.T) ** 2).mean(1) + DAMPING * squares.mean() * (ours**2).sum(1)
    np.testing.assert_allclose(((theirs @ upper) ** 2).sum(1), outputs, rtol=1e-4)


def test_the_hooks_are_gone_afterwards(wide):
    model = load_base(wide, "fp32", CPU)
    with pytest.raises(StoppedError):
        compute_importance(model, rows(wide, 2), names_of(wide), tokens=99, canceled=lambda: True)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert compute_importance(model, [], names_of(wide), tokens=99) is None


def test_activations_that_are_no_numbers_are_told(wide):
    model = load_base(wide, "fp32", CPU)
    model.model.layers[1].mlp.gate_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(SetupError, match=r"activations before blk\.1\.ffn_down\.weight are not finite"):
        compute_importance(model, rows(wide, 2), names_of(wide), tokens=99)


def test_rows_are_taken_from_everywhere():
    many = [[place] * 10 for place in range(100)]
    chosen = [row[0] for row in spread(many, 200)]
    assert len(chosen) == 20
    assert chosen[0] < 5
    assert chosen[-1] > 90
    assert spread(many, 10**6) == many
    assert spread([[1]], 100) == []
    assert len(spread([[1] * 5000], 10**4)[0]) == 2048


def test_the_file_is_read_back_and_is_llama_cpps_format(measured, tmp_path):
    from gguf import GGUFReader

    write_importance(measured, tmp_path / "x.imatrix", ["chats.jsonl"])
    back = read_importance(tmp_path / "x.imatrix")
    assert back.keys() == measured.columns.keys()
    for name, columns in back.items():
        np.testing.assert_allclose(columns, measured.columns[name], rtol=1e-6)
    reader = GGUFReader(tmp_path / "x.imatrix")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["chats.jsonl"]
    assert reader.fields["imatrix.chunk_size"].contents() == measured.tokens
    shapes = {tensor.name: tuple(tensor.data.shape) for tensor in reader.tensors}
    assert shapes["blk.0.attn_q.weight.in_sum2"] == (1, 256)
    assert shapes["blk.0.attn_q.weight.counts"] == (1, 1)


def test_what_is_no_matrix_is_told(tmp_path):
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(SetupError, match="is no importance matrix"):
        read_importance(tmp_path / "x")


@pytest.mark.full
def test_columns_that_matter_are_rounded_less(wide, wide_f16, tmp_path):
    """A matrix that cares for one half of the columns gets that half closer."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    def error(path):
        tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
        weight = tensors["blk.0.ffn_up.weight"]
        return dequantize(weight.data, weight.tensor_type)

    exact = error(wide_f16).astype(np.float64)
    losses = {}
    for half, care in (("first", slice(0, 128)), ("last", slice(128, 256))):
        columns = np.full(256, 1e-3, dtype=np.float32)
        columns[care] = 1.0
        write_importance(Importance({"blk.0.ffn_up.weight": columns}, 10), tmp_path / half)
        made = quantize(wide_f16, tmp_path / f"{half}.gguf", "Q4_K_M", importance=tmp_path / half, threads=1)
        difference = (error(made.path) - exact) ** 2
        losses[half] = difference[:, :128].mean(), difference[:, 128:].mean()
    assert losses["first"][0] < losses["last"][0]
    assert losses["last"][1] < losses["first"][1]


def test_types_that_need_a_matrix_are_refused_without_one(wide_f16, tmp_path):
    with pytest.raises(UsageError, match="IQ2_M can only be made with an importance matrix"):
        quantize(wide_f16, tmp_path / "x.gguf", "IQ2_M")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_the_trained_adapter_counts(wide, wide_adapter, measured):
    without = compute_importance(tuned_model(wide, None), rows(wide, 8), names_of(wide), tokens=10_000)
    assert not np.allclose(without.columns["blk.1.ffn_down.weight"], measured.columns["blk.1.ffn_down.weight"])


@pytest.mark.full
def test_a_file_made_with_a_matrix_is_the_model_still(wide, wide_adapter, wide_f16, measured, tmp_path):
    write_importance(measured, tmp_path / "matrix")
    made = quantize(wide_f16, tmp_path / "x.gguf", "IQ4_NL", importance=tmp_path / "matrix", threads=1)
    assert made.importance
    assert read_back(made.path, "IQ4_NL").fallbacks == []
    assert gguf_kl(made.path, tuned_model(wide, wide_adapter), rows(wide, 1)[0]) < 0.1
