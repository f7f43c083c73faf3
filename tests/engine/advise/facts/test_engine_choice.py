"""The torch-free choice of the engine against the one that training makes."""

from pathlib import Path

import pytest
import torch

from burnish_engine.advise.facts import engine_choice
from burnish_engine.advise.facts.engine_choice import choose_engine, fast_obstacle, keeps_packed
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.spec import decoder_spec, rough_spec
from burnish_engine.train import engine_loader as train_choice
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.fast import fast_support

from support.machines.made_up import gpu_machine

CPU = torch.device("cpu")
LLAMA = {
    "model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
}  # fmt: skip
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
CONFIGS = {
    "llama": LLAMA,
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 16},
    "phi3": {**LLAMA, "model_type": "phi3"},
    "biases": {**LLAMA, "mlp_bias": True},
    "yarn": {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "dropout": {**LLAMA, "attention_dropout": 0.1},
    "mixture": {**LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2},
    "unknown": {**LLAMA, "model_type": "olmo"},
    "wrapper": {"model_type": "gemma3", "text_config": {**LLAMA, "model_type": "gemma3_text", "head_dim": 16}},
    "stored-nf4": {**LLAMA, "quantization_config": NF4},
    "stored-mxfp4": {**LLAMA, "quantization_config": {"quant_method": "mxfp4"}},
    "stored-gptq": {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}},
    "stored-awq": {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}},
    "stored-unheard": {**LLAMA, "quantization_config": {"quant_method": "\x1b[2J" * 100}},
    "stored-unsaid": {**LLAMA, "quantization_config": {"bits": 4}},
    "stored-list": {**LLAMA, "quantization_config": ["gptq"]},
    "stored-number": {**LLAMA, "quantization_config": {"quant_method": 3}},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("engine", ["auto", "fast", "plain"])
@pytest.mark.parametrize(
    ("method", "optimizer", "quantize"),
    [
        *(("lora", "adamw", quantize) for quantize in ("none", "nf4")),
        *(("dora", "adamw", quantize) for quantize in ("none", "nf4")),
        ("full", "adamw", "none"),
        ("lora", "adamw8bit", "nf4"),
    ],
)
def test_advice_and_training_choose_alike(monkeypatch, name, method, optimizer, engine, quantize):
    config = CONFIGS[name]
    recipe = Recipe(
        adapter=AdapterSection(method=method),
        train=TrainSection(engine=engine, optimizer=optimizer),
        model=ModelSection(quantize=quantize),
    )
    source = ModelSource(Path("/nowhere"), name, config, decoder_spec(config))
    spec = source.spec or rough_spec(config)
    assert fast_obstacle(recipe, spec, None, config) == fast_support.why_not(source, recipe, CPU)
    for kind in ("Fast", "Plain"):
        monkeypatch.setattr(train_choice, f"{kind}Engine", lambda *_args, kind=kind, **_options: Made(kind))
    try:
        made = train_choice.make_engine(EngineSpec(source, recipe, None, None, "fp32", CPU))
    except UsageError as error:
        with pytest.raises(UsageError) as caught:
            choose_engine(recipe, spec, None, "fp32", config)
        assert (caught.value.what, caught.value.remedy) == (error.what, error.remedy)
        return
    chosen = choose_engine(recipe, spec, None, "fp32", config)
    assert chosen.fast == (made.kind == "Fast")
    assert ([chosen.note] if chosen.note else []) == made.notes
    assert chosen.nf4 == (quantize == "nf4" or (chosen.fast and source.stored_quantized))
    assert keeps_packed(recipe, config) == (quantize == "nf4" or name == "stored-nf4")


class Made:
    """Stands in for an engine."""

    def __init__(self, kind):
        self.kind, self.notes = kind, []


def test_a_model_of_the_catalog_is_judged_by_its_shape():
    for name, config in CONFIGS.items():
        spec = decoder_spec(config)
        if spec is not None and "quantization_config" not in config:
            assert fast_obstacle(Recipe(), spec, None) == fast_obstacle(Recipe(), spec, None, config), name


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("stored-") and name != "stored-nf4"])
def test_weights_stored_in_a_form_that_cannot_be_loaded_are_refused(monkeypatch, name):
    monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda _name: None)
    config = CONFIGS[name]
    if name == "stored-mxfp4":  # transformers unpacks it by itself
        assert not choose_engine(Recipe(), decoder_spec(config), None, "fp32", config).fast
        return
    with pytest.raises(UsageError, match="stored quantized") as told:
        choose_engine(Recipe(), decoder_spec(config), None, "fp32", config)
    assert len(str(told.value)) < 400
    if name in ("stored-gptq", "stored-awq"):
        assert "gptqmodel" in told.value.what
        monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda _name: 1)
        assert not choose_engine(Recipe(), decoder_spec(config), None, "fp32", config).fast


def test_fp16_is_refused_where_the_plain_engine_would_train():
    recipe = Recipe(train=TrainSection(precision="fp16"), adapter=AdapterSection(method="full"))
    with pytest.raises(UsageError, match="fp16"):
        choose_engine(recipe, decoder_spec(LLAMA), None, "fp16")


def test_every_weight_is_trained_by_the_plain_engine_only():
    full = AdapterSection(method="full")
    chosen = choose_engine(Recipe(adapter=full), decoder_spec(LLAMA), None, "bf16")
    assert not chosen.fast
    assert 'adapter.method = "full"' in chosen.note
    with pytest.raises(UsageError, match="trains adapters only") as told:
        choose_engine(Recipe(adapter=full, train=TrainSection(engine="fast")), decoder_spec(LLAMA), None, "bf16")
    assert 'train.engine = "plain"' in told.value.remedy


@pytest.mark.parametrize(
    ("optimizer", "package"),
    [("paged_adamw8bit", "bitsandbytes"), ("lion", "lion_pytorch"), ("schedule_free", "schedulefree")],
)
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_an_optimizer_whose_library_is_missing_is_refused(monkeypatch, optimizer, package, engine):
    recipe = Recipe(train=TrainSection(optimizer=optimizer, engine=engine))
    assert choose_engine(recipe, decoder_spec(LLAMA), None, "fp32").fast == (engine == "auto")
    monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda name: None if name == package else 1)
    with pytest.raises(UsageError, match=f"needs {package}, which is not installed") as told:
        choose_engine(recipe, decoder_spec(LLAMA), None, "fp32")
    assert 'train.optimizer = "adamw"' in told.value.remedy
    assert choose_engine(Recipe(train=TrainSection(optimizer="muon")), decoder_spec(LLAMA), None, "fp32").fast


@pytest.mark.parametrize(("capability", "fast"), [((7, 5), False), ((8, 0), True), ((12, 0), True), (None, True)])
def test_cards_older_than_the_kernels_train_with_the_plain_engine(capability, fast):
    pytest.importorskip("triton")
    gpu = gpu_machine("NVIDIA GeForce RTX 4090", 2**34, capability=capability).gpus[0]
    chosen = choose_engine(Recipe(), decoder_spec(LLAMA), gpu, "fp32")
    assert chosen.fast is fast
    assert ("older" in chosen.note) is not fast


@pytest.mark.parametrize(("there", "words"), [(True, "a probe finds them exact"), (False, "burnish[hybrid]")])
def test_the_plan_says_what_computes_delta_nets_on_the_plain_engine(monkeypatch, there, words):
    monkeypatch.setattr(
        engine_choice.importlib.util, "find_spec", lambda name: name if there or name != "fla" else None
    )
    config = {**LLAMA, "model_type": "qwen3_next", "linear_num_value_heads": 4}
    [gpu], recipe, spec = gpu_machine("NVIDIA L4", 24 * 2**30).gpus, Recipe(), rough_spec(config)
    assert words in choose_engine(recipe, spec, gpu, "bf16", config).note
    assert "delta" not in choose_engine(recipe, spec, None, "bf16", config).note
    assert "delta" not in choose_engine(recipe, rough_spec(CONFIGS["unknown"]), gpu, "bf16", CONFIGS["unknown"]).note
