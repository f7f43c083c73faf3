"""Importance of each expert's columns: only its own tokens count, and an expert without any is rounded plainly."""

import numpy as np
import pytest
import torch

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.quantize.importance import compute_importance
from burnish_engine.export.quantize.importance_file import Importance, read_importance, write_importance
from burnish_engine.export.quantize.quantize import quantize
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

from support.models.export import rows, tuned_model, write_16_bit
from support.models.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture

QWEN = "Qwen/Qwen3-30B-A3B"
GATES, UPS, DOWNS = (f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up", "down"))


def measure(source, adapter, texts):
    names = name_map(gguf_rules(source.config["model_type"]), source.spec.num_layers)
    return compute_importance(tuned_model(source, adapter), texts, names, tokens=10_000)


def seen_by_linear(source, adapter, texts, layer=1):
    """Return the rows that enter each expert's two products, caught in transformers' own loop over experts."""
    model = tuned_model(source, adapter)
    model.config._experts_implementation = "eager"
    found, real = {}, torch.nn.functional.linear
    module = next(one for name, one in model.named_modules() if name.endswith(f"layers.{layer}.mlp.experts.base_layer.base_layer"))  # fmt: skip  # noqa: E501
    inside = []

    def linear(entering, weight, bias=None):
        if inside and weight.ndim == 2 and weight._base is not None:
            expert = weight.storage_offset() // weight.numel()
            found.setdefault((expert, entering.shape[-1]), []).append(entering.double())
        return real(entering, weight, bias)

    before = module.register_forward_pre_hook(lambda *_: inside.append(1))
    after = module.register_forward_hook(lambda *_: inside.clear())
    torch.nn.functional.linear = linear
    try:
        with torch.no_grad():
            for text in texts:
                model(torch.tensor([text]))
    finally:
        torch.nn.functional.linear = real
        before.remove()
        after.remove()
    return {key: torch.cat(value) for key, value in found.items()}


@pytest.mark.full
def test_only_an_experts_own_tokens_count(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    adapter, texts = adapt_experts(source, tmp_path / "adapter"), rows(source, 4)
    found, caught = measure(source, adapter, texts), seen_by_linear(source, adapter, texts)
    assert int(found.routed[DOWNS].sum()) == 3 * found.tokens
    assert len(caught) > 8
    for expert in range(8):
        hidden, inner = (caught.get((expert, columns), torch.empty(0, columns)) for columns in (128, 64))
        assert found.routed[GATES][expert] == len(hidden)
        if not len(hidden):
            continue
        np.testing.assert_allclose(found.columns[GATES][expert], hidden.square().mean(0).numpy(), rtol=1e-4)
        np.testing.assert_allclose(found.columns[DOWNS][expert], inner.square().mean(0).numpy(), rtol=1e-3)
    np.testing.assert_array_equal(found.columns[GATES], found.columns[UPS])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_quantized_weight_has_its_numbers(name, tmp_path):
    source = make_mixture(name, tmp_path / "base")
    found = measure(source, None, rows(source, 1))
    tensors = {one.name: one.shape for one in read_header(write_16_bit(source, None, tmp_path)).tensors if one.type == "F16"}  # fmt: skip  # noqa: E501
    wanted = {
        name: (*shape[:-2], shape[-1])
        for name, shape in tensors.items()
        if name not in {"token_embd.weight", "output.weight"}
    }
    assert {name: columns.shape for name, columns in found.columns.items()} == wanted


def test_an_expert_without_a_token_is_rounded_plainly_and_told(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    found = measure(source, None, [[5, 6]])
    unseen, experts = found.unseen
    assert experts == 2 * 8
    assert 0 < unseen < experts
    lonely = int(np.flatnonzero(found.routed[DOWNS] == 0)[0])
    np.testing.assert_array_equal(found.columns[DOWNS][lonely], 1.0)
    write_importance(found, tmp_path / "matrix")
    back = read_importance(tmp_path / "matrix")
    for name, columns in found.columns.items():
        np.testing.assert_allclose(back[name], columns.reshape(-1), rtol=1e-5)


@pytest.mark.full
def test_llama_cpp_takes_each_experts_own_columns(tmp_path):
    """A matrix that cares for another half of the columns in each expert gets that half closer."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    def stack(path):
        held = {one.name: one for one in GGUFReader(path).tensors}
        return dequantize(held[UPS].data, held[UPS].tensor_type).astype(np.float64)

    source = make_mixture(QWEN, tmp_path / "base", hidden=256, size=256)
    exact = write_16_bit(source, None, tmp_path)
    cares = np.full((8, 256), 1e-3, dtype=np.float32)
    cares[::2, :128], cares[1::2, 128:] = 1.0, 1.0
    write_importance(Importance({UPS: cares}, 10, {UPS: np.full(8, 10)}), tmp_path / "matrix")
    made = quantize(exact, tmp_path / "x.gguf", "Q4_K_M", importance=tmp_path / "matrix", threads=1)
    errors = np.square(stack(made.path) - stack(exact)).mean(axis=1)
    first, last = errors[:, :128].mean(axis=1), errors[:, 128:].mean(axis=1)
    assert (first[::2] < last[::2]).all()
    assert (first[1::2] > last[1::2]).all()


@pytest.mark.full
@pytest.mark.parametrize("quant", ["Q4_K_M", "IQ4_XS", *(pytest.param(one, marks=pytest.mark.long) for one in (
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_0", "Q4_0", "Q4_1", "IQ4_NL", "Q3_K_M", "IQ3_M", "IQ3_XXS", "Q2_K", "IQ2_M",
))])  # fmt: skip
@pytest.mark.parametrize("name", [QWEN, *(pytest.param(one, marks=pytest.mark.long) for one in PUBLISHED if one != QWEN)])  # fmt: skip  # noqa: E501
def test_types_are_those_predicted_and_the_file_is_the_model(name, quant, tmp_path):
    source = make_mixture(name, tmp_path / "base", hidden=256, size=256)
    adapter = adapt_experts(source, tmp_path / "adapter")
    exact = write_16_bit(source, adapter, tmp_path)
    write_importance(measure(source, adapter, rows(source, 3)), tmp_path / "matrix")
    made = quantize(exact, tmp_path / "x.gguf", quant, importance=tmp_path / "matrix", threads=1)
    assert made.fallbacks == []
    assert made.bytes == made.path.stat().st_size
    assert check_contents(made.path, Origin(source, adapter), load_tokenizer(source)) == []


@pytest.mark.full
def test_experts_in_mxfp4_stay_so_in_every_type(tmp_path):
    from burnish_engine.export.quantize.quantize import predicted_bytes

    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True)
    exact = write_16_bit(source, None, tmp_path)
    made = quantize(exact, tmp_path / "x.gguf", "Q8_0", threads=1)
    kinds = {one.name: one.type for one in read_header(made.path).tensors}
    assert {kinds[f"blk.{layer}.ffn_{part}_exps.weight"] for layer in (0, 1) for part in ("gate", "up", "down")} == {"MXFP4"}  # fmt: skip  # noqa: E501
    assert kinds["blk.0.attn_q.weight"] == "Q8_0"
    assert predicted_bytes(read_header(exact), "Q8_0") == made.bytes
    assert [text for text in made.fallbacks if "6 tensors stayed MXFP4" in text] == made.fallbacks
    assert check_contents(made.path, Origin(source, None), load_tokenizer(source)) == []
