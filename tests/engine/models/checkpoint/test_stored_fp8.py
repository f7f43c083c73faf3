"""Checkpoints published in FP8: the values of their codes in 16 bits, and the codes themselves in FP8."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.families import stores_fp8, why_not_fast

from support.models import parity, tiny_models
from support.models.fp8_files import CONFIGS, publish

KINDS = list(CONFIGS)
SIZES = {"hidden_size": 192, "intermediate_size": 320}  # blocks that are not whole


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_models.make("llama", tmp_path_factory.mktemp("fp8") / "base", tokenizer=True, **SIZES)


def loaded(folder, **options):
    options = {"dtype": torch.float32, "device": parity.CPU, "positions": 64} | options
    return load_decoder(parity.model_source(folder), DecoderOptions(**options)).decoder


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_in_16_bits_weights_are_codes_times_scales(base, tmp_path, kind):
    values = publish(base, tmp_path / "published", kind)
    source = open_model(str(tmp_path / "published"))
    assert stores_fp8(source.config)
    assert why_not_fast(source.config, source.spec, nf4=True) == ""
    decoder = loaded(tmp_path / "published")
    q, k, v = (values[f"model.layers.1.self_attn.{one}_proj.weight"] for one in "qkv")
    stack = decoder.layers[1].weights.mixer_in
    assert torch.equal(stack.frozen.buffer()[: stack.outputs, : stack.inputs], torch.cat([q, k, v]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [(), (0, 1)])
def test_in_fp8_codes_with_a_scale_a_row_stay_as_they_are(base, tmp_path, kind, layers):
    """On the device and in host memory; where blocks have scales, rows are rounded once more."""
    values = publish(base, tmp_path / "published", kind)
    decoder = loaded(tmp_path / "published", eight_bits=EightBitUse("fp8", ""), layers_on_host=frozenset(layers))
    decoder.ring.begin()
    wanted = values["model.layers.1.mlp.down_proj.weight"]
    stack = decoder.layers[1].weights.down
    with decoder.ring.present(0):
        pass
    with decoder.ring.present(1):
        found = stack.frozen.buffer()[: stack.outputs, : stack.inputs]
        if kind != "blocks":
            assert torch.equal(found, wanted)
        else:
            assert 0 < float((found - wanted).norm() / wanted.norm()) < 0.04


@pytest.mark.parametrize("damage", [lambda scale: scale * float("nan"), lambda scale: -scale, lambda scale: scale[:-1]])
def test_damaged_scales_are_refused(base, tmp_path, damage):
    publish(base, tmp_path / "published", "rows")
    file = tmp_path / "published" / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.mlp.down_proj.weight_scale"
    tensors[name] = damage(tensors[name])
    save_file(tensors, file, metadata={"format": "pt"})
    for eight_bits in (EightBitUse(), EightBitUse("fp8", "fp8")):
        with pytest.raises(SetupError):
            loaded(tmp_path / "published", dtype=torch.bfloat16, eight_bits=eight_bits)


@pytest.mark.parametrize("change", [{"quant_method": "awq"}, {"weight_block_size": [64, 64]}, {"quant_method": "gptq"}])
def test_other_ways_to_quantize_are_left_to_transformers(base, change):
    source = parity.model_source(base)
    config = source.config | {"quantization_config": CONFIGS["blocks"] | change}
    assert not stores_fp8(config)
    assert why_not_fast(config, source.spec, nf4=True)
