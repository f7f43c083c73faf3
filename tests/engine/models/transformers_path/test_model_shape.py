"""What is planned from a config equals what PEFT attaches to the model that transformers builds from it."""

import logging

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from burnish_engine.advise.facts.shape import adapter_parameters, parameters
from burnish_engine.advise.facts.trained_bytes import tensor_sizes
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import read_config
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families.adapter_targets import check_spec_targets, check_targets, planned_coverage
from burnish_engine.models.transformers_path import model_shape
from burnish_engine.models.transformers_path.model_shape import (
    inside_and_outside,
    measured_coverage,
    measured_spec,
    placed_matrices,
    placed_tables,
)
from burnish_engine.models.transformers_path.plain import attach_adapter, load_adapter, trainable_parameters
from burnish_engine.radar.small_model import small_model

TABLES = (
    "gemma3_text",
    "gpt_oss",
    "lfm2",
    "lfm3",
    "llama",
    "mistral",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "smollm3",
)
OTHERS = ("deepseek_v3", "falcon_h1", "gpt2", "mixtral", "olmo2", "opt", "qwen2_moe", "recurrent_gemma")
SECTIONS = {
    "auto": AdapterSection(rank=3),
    "all-linear": AdapterSection(rank=3, targets=["all-linear"]),
    "names": AdapterSection(rank=3, targets=["q_proj", "down_proj"]),
    "dora": AdapterSection(rank=3, method="dora"),
}


def on_meta(config):
    """The model without weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def check_family(name, sections, folder):
    """Compare the plan with the attached adapter; both refuse the same recipes.

    Returns:
        Whether transformers builds the architecture small from what its config.json says.
    """
    try:
        small_model(name).config.save_pretrained(folder)
        written = read_config(folder)
        config = CONFIG_MAPPING[written["model_type"]].from_pretrained(folder)
        model = on_meta(config)
    except Exception:  # noqa: BLE001  transformers does not make this one small
        return False
    spec = decoder_spec(written) or measured_spec(written)
    assert spec is not None, name
    whole = sum(value.numel() for value in model.parameters())
    assert parameters(spec) == whole == sum(tensor_sizes(spec, AdapterSection(method="full"))), name
    for section in sections:
        placed = placed_matrices(model := on_meta(config))
        try:
            check_targets(*inside_and_outside([*placed, *placed_tables(model)]), section)
        except UsageError as error:
            with pytest.raises(UsageError) as told:
                check_spec_targets(spec, section)
            assert sorted(told.value.remedy) == sorted(error.remedy), name
            continue
        check_spec_targets(spec, section)
        with torch.device("meta"):
            tuned = attach_adapter(model, section, seed=0)
        trained = [value.numel() for _, value in trainable_parameters(tuned)]
        assert adapter_parameters(spec, section) == sum(trained), (name, section.targets)
        assert sorted(tensor_sizes(spec, section)) == sorted(trained), (name, section.targets)
        found, planned = measured_coverage(placed, tuned), planned_coverage(spec, section)
        assert set(found.kinds) == set(planned.kinds), (name, section.targets)
    return True


@pytest.mark.full
@pytest.mark.parametrize("name", TABLES + OTHERS)
def test_planned_weights_are_the_attached_ones(name, tmp_path):
    assert check_family(name, SECTIONS.values(), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_planned_weights_are_the_attached_ones_in_every_architecture(name, tmp_path):
    if not check_family(name, SECTIONS.values(), tmp_path):
        pytest.skip("transformers does not build it small")


def without_gradient(name):
    """Trained tensors that a pass gives no gradient although they are no experts; None where no pass can be made."""
    try:
        model = small_model(name)
        tuned = attach_adapter(model, AdapterSection(rank=2), seed=0)
    except Exception:  # noqa: BLE001  transformers does not make this one small
        return None
    for _, value in trainable_parameters(tuned):
        torch.nn.init.normal_(value, std=0.1)
    try:
        torch.manual_seed(0)
        logits = tuned(input_ids=torch.randint(3, 90, (1, 37)), use_cache=False).logits
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError):
        return None  # sizes that do not go together
    (logits * torch.rand_like(logits)).sum().backward()
    dead = [key for key, value in trainable_parameters(tuned) if value.grad is None or not value.grad.any()]
    return [key for key in dead if "expert" not in key]


@pytest.mark.full
@pytest.mark.parametrize("name", ["bart", "gpt_oss", "lfm2", "mamba", "qwen2_moe"])
def test_what_is_counted_as_reached_has_a_gradient(name):
    assert without_gradient(name) == []


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_what_is_counted_as_reached_has_a_gradient_in_every_architecture(name):
    dead = without_gradient(name)
    if dead is None:
        pytest.skip("transformers does not build it small, or no pass can be made")
    assert dead == []


def test_a_config_that_cannot_be_built_has_no_shape():
    assert measured_spec({"model_type": "olmo2", "hidden_size": "wide"}) is None
    assert measured_spec({"model_type": "olmo2", "num_hidden_layers": 10**9}) is None
    assert measured_spec({"model_type": "no such model"}) is None


def test_a_model_that_cannot_be_built_is_tried_once(monkeypatch):
    tried = []

    def fail(config):
        tried.append(config)
        raise RuntimeError("cannot be built")

    monkeypatch.setattr(AutoModelForCausalLM, "from_config", fail)
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    assert [measured_spec(config), measured_spec(dict(config))] == [None, None]
    assert len(tried) == 1


def test_a_model_whose_layers_cannot_be_counted_is_reported(monkeypatch, caplog):
    def fail(*_given):
        raise KeyError("mixer")

    monkeypatch.setattr(model_shape, "kept_by_mixers", fail)
    monkeypatch.setattr(logging.getLogger("burnish_engine"), "propagate", True)  # the command line turns it off
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 5}
    assert measured_spec(config) is None
    assert "(llama) could not be counted" in caplog.text


@pytest.mark.full
@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe", "laguna"])
def test_a_saved_adapter_on_experts_is_read_back(tmp_path, name):
    if name not in CONFIG_MAPPING:
        pytest.skip("the installed transformers does not know it")
    config = AutoConfig.for_model(
        name, vocab_size=97, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_experts=4,
        shared_expert_intermediate_size=24, num_experts_per_tok=2, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, mlp_only_layers=[0],
    )  # fmt: skip
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(config)
    weights = {key: value.clone() for key, value in base.state_dict().items()}
    tuned = attach_adapter(base, AdapterSection(rank=2), seed=1).eval()
    for _, value in trainable_parameters(tuned):
        torch.nn.init.normal_(value, std=0.1)
    tuned.save_pretrained(str(tmp_path))
    again = AutoModelForCausalLM.from_config(config)
    again.load_state_dict(weights)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        plain = again.eval()(ids).logits
        read = load_adapter(again, tmp_path, trainable=True).eval()
        wanted, found = tuned(ids).logits, read(ids).logits
    assert [name for name, _ in trainable_parameters(read)] == [name for name, _ in trainable_parameters(tuned)]
    assert not torch.allclose(plain, wanted, atol=1e-3)
    torch.testing.assert_close(found, wanted)
