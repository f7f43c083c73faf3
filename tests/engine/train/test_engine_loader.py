"""Which engine trains: ours where it can, the other one where it cannot and may, else a clear refusal."""

import json
import shutil

import pytest
import torch

from burnish_engine.cli.training import train
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation import load_fast
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.fast.fast_support import why_not

from support.models.tiny import make_tokenizer
from support.runs.tiny_runs import tiny_recipe

CPU = torch.device("cpu")


def changed(recipe, **sections):
    """The recipe with other settings: section=dict of settings."""
    updates = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return recipe.model_copy(update=updates)


DROPPING = {"method": "dora", "dropout": 0.1}


@pytest.fixture
def choose(tmp_path, tiny_llama):
    """Choose an engine: (folder, sections of the recipe) -> engine."""
    made = []

    def choose(folder=tiny_llama, precision="fp32", name=None, **sections):
        if not (tmp_path / "base").exists():
            shutil.copytree(tiny_llama, tmp_path / "base")
        recipe = changed(tiny_recipe(tmp_path, rows=12), **{"model": {"path": str(folder)}} | sections)
        source = open_model(str(folder))
        tokenizer = load_tokenizer(source)
        stream = BatchStream(prepare(recipe, tokenizer).train, recipe.train)
        engine = make_engine(EngineSpec(source, recipe, stream, tokenizer, precision, CPU, name=name))
        made.append(engine)
        return engine

    yield choose
    for engine in made:
        engine.close()


@pytest.fixture(scope="module")
def olmo(tmp_path_factory):
    """A family that our decoder does not know."""
    from transformers import OlmoConfig, OlmoForCausalLM

    folder = tmp_path_factory.mktemp("olmo")
    tokenizer = make_tokenizer(folder)
    config = OlmoConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    OlmoForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("asked", ["auto", "fast"])
def test_a_known_family_is_trained_by_ours(choose, asked):
    engine = choose(train={"engine": asked})
    assert (engine.facts.name, engine.facts.layout, engine.notes) == ("fast", "packed", [])


@pytest.mark.full
def test_plain_is_honored_without_a_word(choose):
    engine = choose(train={"engine": "plain"})
    assert (engine.facts.name, engine.notes) == ("plain", [])


def test_plain_trains_on_one_gpu_also_where_several_would_be_exact(choose):
    assert choose(train={"engine": "plain"}, devices={"exact": True}).facts.name == "plain"
    with pytest.raises(UsageError, match="several GPUs") as told:
        choose(train={"engine": "plain"}, devices={"exact": True, "strategy": "data_parallel"})
    assert "sharded" not in told.value.remedy
    with pytest.raises(UsageError, match="several GPUs") as told:
        choose(adapter={"method": "full"}, devices={"exact": True, "strategy": "data_parallel"})
    assert "sharded" in told.value.remedy


def test_more_gpus_on_the_command_line_share_out_a_whole_model():
    recipe = Recipe()
    whole = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"method": "full"})})
    assert train.share_out(recipe, 2).devices.strategy == "data_parallel"
    assert train.share_out(whole, 2).devices.strategy == "sharded"
    assert train.share_out(whole, 1).devices.strategy == "single"
    exact = whole.model_copy(update={"devices": whole.devices.model_copy(update={"exact": True})})
    with pytest.raises(UsageError, match="--gpus 2"):
        train.share_out(exact, 2)


@pytest.mark.full
def test_an_unknown_family_is_trained_by_the_other_and_told_why(choose, olmo):
    engine = choose(olmo, adapter={"targets": ["all-linear"]})
    assert engine.facts.name == "plain"
    assert "'olmo'" in engine.notes[0]


@pytest.mark.full
def test_dora_with_dropout_is_trained_by_the_other_and_told_why(choose):
    assert choose(adapter={"method": "dora", "dropout": 0.0}).facts.name == "fast"
    engine = choose(adapter=DROPPING)
    assert engine.facts.name == "plain"
    assert "DoRA with dropout" in engine.notes[0]


@pytest.mark.parametrize("what", ["family", "adapter"])
def test_fast_where_it_cannot_be_is_refused(choose, olmo, what):
    with pytest.raises(UsageError, match="does not do") as told:
        if what == "family":
            choose(olmo, train={"engine": "fast"}, adapter={"targets": ["all-linear"]})
        else:
            choose(train={"engine": "fast"}, adapter=DROPPING)
    assert 'train.engine = "plain"' in told.value.remedy


@pytest.mark.full
def test_a_run_goes_on_with_its_engine(choose):
    assert choose(name="plain").facts.name == "plain"
    assert choose(name="plain").notes == []
    assert choose(name="fast", train={"engine": "auto"}).facts.name == "fast"
    with pytest.raises(UsageError, match="Start a new run"):
        choose(name="fast", adapter=DROPPING)


@pytest.mark.full
def test_both_engines_train_in_4_bits(choose, olmo):
    loss = {}
    for name in ("plain", "fast"):
        engine = choose(train={"engine": name}, model={"quantize": "nf4"})
        assert engine.facts.name == name
        engine.start(0, 2, 2)
        engine.queue_step()
        loss[name] = next(iter(engine.results(wait=True))).loss
    assert loss["plain"] == pytest.approx(loss["fast"], rel=1e-5)
    assert choose(olmo, model={"quantize": "nf4"}, adapter={"targets": ["all-linear"]}).facts.name == "plain"


@pytest.mark.full
def test_only_ours_trains_in_fp16(choose, olmo):
    with pytest.raises(UsageError, match=r"olmo.*only the fast engine trains in fp16"):
        choose(olmo, precision="fp16", adapter={"targets": ["all-linear"]})
    assert choose(precision="fp16").facts.name == "fast"


@pytest.mark.parametrize(
    ("capability", "triton", "reason"),
    [
        ((7, 5), True, "Tesla T4 is older than Burnish's kernels are made for"),
        ((8, 6), False, "Triton is not installed"),
        ((8, 6), True, ""),
    ],
)
def test_a_gpu_without_our_kernels_trains_plainly(tiny_llama, tmp_path, monkeypatch, capability, triton, reason):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device=None: "Tesla T4")
    monkeypatch.setattr(load_fast.importlib.util, "find_spec", lambda name: object() if triton else None)
    shutil.copytree(tiny_llama, tmp_path / "base")
    recipe = tiny_recipe(tmp_path, rows=12)
    assert why_not(open_model(str(tiny_llama)), recipe, torch.device("cuda")) == reason
    assert why_not(open_model(str(tiny_llama)), recipe, CPU) == ""


def test_a_quantization_that_is_not_nf4_is_told(choose, tmp_path, tiny_llama):
    folder = shutil.copytree(tiny_llama, tmp_path / "gptq")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="is stored quantized, which the fast engine does not do"):
        choose(folder, train={"engine": "fast"})


@pytest.mark.full
def test_the_plain_engine_says_which_pins_it_has_no_use_for(choose):
    (note,) = choose(train={"engine": "plain"}, memory={"layers": "narrow", "head_rows": 64}).notes
    assert "no use for memory.layers, memory.head_rows." in note
    assert choose(train={"engine": "plain"}, memory={"budget_gib": 4.0}).notes == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["magma", "skip_update"])
def test_masking_changes_no_choice_and_both_engines_do_it(choose, kind):
    assert choose(train={"engine": "plain"}, masking={"kind": kind}).facts.name == "plain"
    assert choose(masking={"kind": kind}).facts.name == "fast"
