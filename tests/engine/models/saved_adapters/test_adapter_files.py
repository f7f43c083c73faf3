"""What a saved adapter changes is read in one place: what plans count is what PEFT trains, and the rest is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.advise.facts.engine_choice import check_plain_engine, choose_engine
from burnish_engine.advise.facts.trained_bytes import tensor_shapes, trained_parameters
from burnish_engine.advise.plan.exports import planned_exports
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.chat.torch_chat import TorchChat
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.decoder.lora_adapter import read_plan
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import check_spec_targets, planned_coverage
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_engine.models.saved_adapters.saved_adapter import CONFIG_FILE, WEIGHTS_FILE
from burnish_engine.models.saved_adapters.start_adapter import open_start, refuse_other_base
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.model_shape import measured_coverage, placed_matrices
from burnish_engine.train.lifecycle.start import provide_start

from support.models import beyond_layers, tiny_models
from support.models.tiny import make_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tied base in bf16."""
    return beyond_layers.base(tmp_path_factory.mktemp("base"), tied=True, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def adapter(source, tmp_path_factory):
    """Make an adapter of a kind once."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = beyond_layers.adapter(source, tmp_path_factory.mktemp("adapter"), kind)
        return made[kind]

    return make


@pytest.mark.parametrize("kind", [kind for kind in beyond_layers.KINDS if kind != "both adapted as one"])
def test_plans_count_what_is_trained_and_training_keeps_fp32(source, adapter, tmp_path, kind):
    section = open_start(AdapterSection(start=str(adapter(kind)))).section
    base = plain.load_base(source, "bf16", CPU)
    placed = placed_matrices(base)
    tuned = plain.load_adapter(base, adapter(kind), trainable=True)
    trained = plain.trainable_parameters(tuned)
    assert trained_parameters(source.spec, section) == sum(value.numel() for _, value in trained)
    assert sorted(tensor_shapes(source.spec, section)) == sorted(tuple(value.shape) for _, value in trained)
    assert planned_coverage(source.spec, section) == measured_coverage(placed, tuned)
    tuned(torch.arange(9).reshape(1, 9)).logits.float().square().mean().backward()
    assert all(value.grad is not None and value.dtype == torch.float32 for _, value in trained)
    tuned.create_or_update_model_card = lambda _folder: None
    tuned.save_pretrained(tmp_path, save_embedding_layers=False)
    before, after = load_file(adapter(kind) / WEIGHTS_FILE), load_file(tmp_path / WEIGHTS_FILE)
    assert before.keys() - after.keys() == {name for name in before if name.endswith(".base_layer.weight")}
    assert all(torch.equal(before[name], value) for name, value in after.items())


@pytest.mark.parametrize(
    ("kind", "word"), [("head adapted", "lm_head"), ("rows of tokens", "rows"), ("biases", "bias")]
)
def test_the_plan_knows_that_the_plain_engine_trains_it(source, adapter, kind, word):
    started = open_start(AdapterSection(start=str(adapter(kind)))).section
    recipe = Recipe.model_validate({"model": {"path": "x"}, "data": {"files": ["x"]}}).model_copy(
        update={"adapter": started}
    )
    choice = choose_engine(recipe, source.spec, None, "fp32", source.config)
    assert not choice.fast
    assert word in choice.note
    shared = recipe.devices.model_copy(update={"strategy": "data_parallel", "gpus": [0, 1]})
    with pytest.raises(UsageError, match="several GPUs"):
        choose_engine(recipe.model_copy(update={"devices": shared}), source.spec, None, "fp32", source.config)


def test_matrices_that_embedding_and_head_share_are_not_trained(adapter):
    with pytest.raises(SetupError, match="ensure_weight_tying"):
        open_start(AdapterSection(start=str(adapter("both adapted as one"))))
    assert open_start(AdapterSection(start=str(adapter("both copied as one")))).section.beyond


def test_weights_in_4_bits_cannot_be_trained_whole(adapter):
    started = open_start(AdapterSection(start=str(adapter("matrices copied")))).section
    recipe = Recipe.model_validate({"model": {"path": "x", "quantize": "nf4"}, "data": {"files": ["x"]}})
    with pytest.raises(UsageError, match=r"self_attn\.q_proj"):
        check_plain_engine(recipe.model_copy(update={"adapter": started}), "fp32", "", "")


def test_a_recipe_may_name_head_and_embedding(source):
    section = AdapterSection(targets=["q_proj", "lm_head", "embed_tokens"], rank=4)
    assert check_spec_targets(source.spec, section) == []
    assert [one.name for one in planned_coverage(source.spec, section).beyond] == ["embed_tokens", "lm_head"]
    tuned = plain.attach_adapter(plain.load_base(source, "bf16", CPU), section, 0)
    trained = plain.trainable_parameters(tuned)
    assert trained_parameters(source.spec, section) == sum(value.numel() for _, value in trained)
    assert not planned_coverage(source.spec, AdapterSection(targets=["all-linear"])).beyond


@pytest.mark.parametrize(
    ("config", "word"), [({"alora_invocation_tokens": [5]}, "aLoRA"), ({"init_lora_weights": "pissa"}, "pissa")]
)
def test_what_cannot_be_merged_is_told_by_the_plan(source, adapter, tmp_path, config, word):
    folder = shutil.copytree(adapter("biases"), tmp_path / "copy")
    said = json.loads((folder / CONFIG_FILE).read_text()) | config
    (folder / CONFIG_FILE).write_text(json.dumps(said))
    section = open_start(AdapterSection(start=str(folder))).section
    reasons = {one.kind: one.reason for one in planned_exports(source.config, source.spec, section) if not one.works}
    assert word in reasons["safetensors"]
    assert word in reasons["gguf"]
    with pytest.raises(UsageError, match=word):
        read_adapter(folder)


A, B = (f"base_model.model.model.layers.0.self_attn.q_proj.lora_{side}.weight" for side in "AB")
MAGNITUDE, OTHER_LAYER = A.replace("A.weight", "magnitude_vector"), A.replace("layers.0", "layers.7")

BROKEN = [(float("nan"), torch.float32), (float("-inf"), torch.bfloat16), (float("nan"), torch.float16)]


@pytest.mark.parametrize(
    ("config", "change", "words"),
    [
        ({"alpha_pattern": [1]}, {}, "alpha_pattern .*no object"),
        ({"alpha_pattern": {"(": 1}}, {}, "no regular expression"),
        ({"alpha_pattern": {"q_proj": 10**400}}, {}, "no finite number"),
        ({"alpha_pattern": {"q_proj": float("nan")}}, {}, "no finite number"),
        ({"use_dora": "yes"}, {}, "neither true nor false"),
        ({"bias": 5}, {}, "no text"),
        ({"modules_to_save": 5}, {}, "no list"),
        ({"use_dora": True}, {}, "lora_magnitude_vector"),
        ({}, {MAGNITUDE: torch.ones(64)}, "no place"),
        ({}, {B: None}, r"lora_B\.weight"),
        ({"target_modules": ["q_proj", "v_proj"]}, {}, r"lacks 2 .*0\.self_attn\.v_proj"),
        ({"target_modules": ".*layers.1.*(q|up)_proj"}, {}, r"lacks 1 .*1\.mlp\.up_proj"),
        ({}, dict.fromkeys((A.replace(".0.", ".1."), B.replace(".0.", ".1."))), r"1\.self_attn\.q_proj"),
        *(({}, {A: torch.full((3, 64), value, dtype=kind)}, "infinite or no numbers") for value, kind in BROKEN),
        ({}, {"strange": torch.ones(3)}, "no place"),
        ({}, {A: torch.zeros(3, 5)}, r"\(3, 5\)"),
        ({}, {A: torch.zeros(3, 64, 1)}, "64, 1"),
        ({}, {OTHER_LAYER: torch.zeros(3, 64), OTHER_LAYER.replace("A.w", "B.w"): torch.zeros(64, 3)}, "no place"),
    ],
    ids=str,
)
def test_the_plan_refuses_what_training_would_refuse(source, adapter, tmp_path, config, change, words):
    folder = shutil.copytree(adapter("biases of B"), tmp_path / "copy")
    (folder / CONFIG_FILE).write_text(json.dumps(json.loads((folder / CONFIG_FILE).read_text()) | config))
    tensors = load_file(folder / WEIGHTS_FILE) | change
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / WEIGHTS_FILE)
    with pytest.raises(SetupError, match=words):
        plan_recipe(Recipe(model=ModelSection(path=str(source.folder)), adapter=AdapterSection(start=str(folder))))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn, torch.int64])
def test_numbers_that_are_no_floats_are_refused_in_words_by_all(source, adapter, tmp_path, dtype):
    folder = shutil.copytree(adapter("biases"), tmp_path / "copy")
    tensors = load_file(folder / WEIGHTS_FILE)
    name = min(tensors)
    save_file(tensors | {name: tensors[name].to(dtype)}, folder / WEIGHTS_FILE)
    for use in (
        lambda: open_start(AdapterSection(start=str(folder))),
        lambda: read_plan(folder, family("llama").modules(source.spec)),
        lambda: plain.load_adapter(None, folder),
        lambda: read_adapter(folder),
    ):
        with pytest.raises(SetupError, match="no floating-point numbers") as refused:
            use()
        assert name in refused.value.what


@pytest.mark.parametrize("kind", ["embedding copied", "head adapted", "embedding adapted", "rows of tokens"])
def test_another_vocabulary_is_refused_before_training(source, adapter, tmp_path, kind):
    folder = shutil.copytree(adapter(kind), tmp_path / "copy")
    rows = source.rows
    tensors = load_file(folder / WEIGHTS_FILE)
    for name, value in tensors.items():
        grown = [size + 3 if size == rows else size for size in value.shape]
        tensors[name] = torch.zeros(grown)
    save_file(tensors, folder / WEIGHTS_FILE)
    if kind == "rows of tokens":
        said = json.loads((folder / CONFIG_FILE).read_text()) | {"trainable_token_indices": [1, 5, rows + 2]}
        (folder / CONFIG_FILE).write_text(json.dumps(said))
    refused_alike(source, folder, f"{rows + 3:,} tokens")
    refuse_other_base(open_start(AdapterSection(start=str(adapter(kind)))), source)


def refused_alike(source, folder, words):
    """An adapter is refused for the same reason by plans, training, exports and chat."""
    recipe = Recipe(model=ModelSection(path=str(source.folder)), adapter=AdapterSection(start=str(folder)))
    uses = (
        lambda: plan_recipe(recipe),
        lambda: provide_start(RunPaths(folder / "run"), recipe, source, fresh=True),
        lambda: MergedWeights(source, folder),
        lambda: TorchChat(source, folder),
    )
    told = set()
    for use in uses:
        with pytest.raises(SetupError, match=words) as refused:
            use()
        told.add(refused.value.what)
    assert len(told) == 1


def test_a_tokenizer_beside_the_adapter_must_be_the_models(source, adapter, tmp_path):
    folder = shutil.copytree(adapter("biases"), tmp_path / "copy")
    shutil.copy(source.folder / "tokenizer.json", folder)
    refuse_other_base(open_start(AdapterSection(start=str(folder))), source)
    tokenizer = make_tokenizer(tmp_path / "other", vocab_size=512)
    tokenizer.add_tokens(["<|new|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    refused_alike(source, folder, r"<\|new\|>")


def test_biases_for_layers_without_them_are_refused_before_training(tmp_path):
    source = open_model(str(tiny_models.make("llama", tmp_path / "base", tokenizer=True)))
    folder = beyond_layers.adapter(source, tmp_path / "adapter", "biases of B")
    for base in (source, wrapped(source, tmp_path / "wrapped")):
        with pytest.raises(SetupError, match=r"lora_bias.*q_proj"):
            refuse_other_base(open_start(AdapterSection(start=str(folder))), base)


def wrapped(source, folder):
    """A model that holds a source's tensors beside other parts, of which there are none here."""
    shutil.copytree(source.folder, folder)
    tensors = load_file(folder / "model.safetensors")
    inner = {f"language_model.{name}": value for name, value in tensors.items()}
    save_file(inner, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": source.config}))
    return open_model(str(folder))


def test_a_copy_of_another_base_is_refused(source, adapter, tmp_path):
    folder = shutil.copytree(adapter("head adapted"), tmp_path / "copy")
    tensors = load_file(folder / WEIGHTS_FILE)
    tensors["base_model.model.lm_head.base_layer.weight"][5, 3] += 1
    save_file(tensors, folder / WEIGHTS_FILE)
    with pytest.raises(SetupError, match="another lm_head"):
        plain.load_adapter(plain.load_base(source, "fp32", CPU), folder)


@pytest.mark.parametrize("tokens", [3, "x", [-1], {"embed_tokens": "x"}, [1.5], [True]])
def test_tokens_that_are_none_are_refused(source, adapter, tmp_path, tokens):
    folder = shutil.copytree(adapter("rows of tokens"), tmp_path / "copy")
    said = json.loads((folder / CONFIG_FILE).read_text()) | {"trainable_token_indices": tokens}
    (folder / CONFIG_FILE).write_text(json.dumps(said))
    with pytest.raises(SetupError, match="trainable_token_indices"):
        refuse_other_base(open_start(AdapterSection(start=str(folder))), source)
    assert read_files(folder).obstacle
