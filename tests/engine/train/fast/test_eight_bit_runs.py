"""Whole runs in 8 bits: resumed to the bit, read by PEFT, told in events and card, refused where they cannot be."""

import json
from itertools import count

import pytest
import torch
from safetensors.torch import load_file

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.decoder.frozen.coded_weights import CodedWeight
from burnish_engine.models.device import device as device_module
from burnish_engine.models.transformers_path import plain
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run, read_recipe
from burnish_engine.train.fast import fast_engine, products_choice
from burnish_engine.train.fast.products_choice import ProductsChoice, choose_products, clearly_fastest
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.run import run_training
from burnish_kernels import tuning

from support.models import tiny_models
from support.runs.tiny_runs import commanding, losses, of_kind, tiny_recipe, trained

CPU = torch.device("cpu")
WAYS = {
    "FP8": ("none", "fp8"),
    "FP8 stored": ("fp8", "16"),
    "NF4, FP8 products": ("nf4", "fp8"),
    "INT8": ("none", "int8"),
    "NF4, INT8 products": ("nf4", "int8"),
    "MXFP8": ("none", "mxfp8"),
    "NF4, MXFP8 products": ("nf4", "mxfp8"),
}
BF16 = {"precision": '"bf16"'}


@pytest.fixture
def make(tmp_path):
    """Make a run: (model.quantize, train.products, keyword arguments of tiny_recipe) -> its paths."""
    numbers = count()

    def make_run(quantize="none", products="16", **train):
        recipe = tiny_recipe(tmp_path, products=f'"{products}"', **BF16 | train)
        model = recipe.model.model_copy(update={"quantize": quantize})
        return create_run(recipe.model_copy(update={"model": model}), tmp_path / f"run {next(numbers)}")

    return make_run


@pytest.mark.full
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.long if way in {"NF4, INT8 products", "NF4, MXFP8 products"} else ())
        for way in WAYS
    ],
)
def test_an_ended_run_goes_on_with_the_same_bits(make, way):
    """Under dropout, and the adapter is one that PEFT reads."""
    settings = {"max_steps": 7, "epochs": 9.0}
    whole, cut = make(*WAYS[way], **settings), make(*WAYS[way], **settings)
    assert run_training(whole).exit_code == ExitCode.DONE
    assert run_training(cut, listener=commanding(cut, 4, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(cut).exit_code == ExitCode.DONE
    assert losses(cut) == losses(whole)
    assert trained(cut) == trained(whole)
    products = WAYS[way][1]
    assert {event.products for event in of_kind(cut, RunStarted)} == {products}
    facts = read_card(cut).circumstances
    weights = "nf4" if "NF4" in way else way.split()[0].lower()
    assert (facts.engine, facts.products, facts.weights) == ("fast", products, weights)
    source = open_model(json.loads((cut.adapter / "adapter_config.json").read_text())["base_model_name_or_path"])
    model = plain.load_adapter(plain.load_base(source, "fp32", CPU), cut.adapter)
    there = {name.replace(".default", ""): value for name, value in model.named_parameters() if "lora_" in name}
    saved = load_file(cut.adapter / "adapter_model.safetensors")
    assert saved.keys() == there.keys()
    assert all(torch.equal(there[name].float(), saved[name].float()) for name in saved)


@pytest.mark.full
@pytest.mark.parametrize("products", EIGHT_BITS)
def test_it_learns_what_16_bits_learn(make, products):
    settings = {"max_steps": 12, "epochs": 9.0}
    runs = [make(*way, **settings) for way in (("none", "16"), ("none", products))]
    for one in runs:
        run_training(one)
    sixteen, eight = (losses(one) for one in runs)
    assert sixteen != eight
    assert eight[12] < eight[1] - 0.2
    assert eight[12] == pytest.approx(sixteen[12], rel=0.02)


@pytest.mark.full
def test_products_are_chosen_once_and_a_resumed_run_keeps_them(make, monkeypatch):
    """However the timing ends the second time; and on a card without FP8 the run says what it needs."""
    paths = make("none", "auto", max_steps=6, epochs=9.0, checkpoint_every=2)
    chosen = ProductsChoice("fp8", "Because it is.")
    monkeypatch.setattr(run_setup, "choose_products", lambda *_: chosen)
    run_training(paths, listener=commanding(paths, 4, "stop"))
    monkeypatch.setattr(run_setup, "choose_products", lambda *_: pytest.fail("it was chosen before"))
    with monkeypatch.context() as patch:
        patch.setattr(fast_engine, "capability_of", lambda _: 86)
        refused = run_training(paths)
        assert (refused.exit_code, refused.step) == (ExitCode.USAGE, 0)
        assert "8.6" in refused.message
    assert run_training(paths).exit_code == ExitCode.DONE
    started = of_kind(paths, RunStarted)
    assert {event.products for event in started} == {"fp8"}
    assert started[0].products_reason == chosen.reason


class Clock:
    """A timer that needs so long for 16 bits and for 8, by turns; and counts."""

    def __init__(self, *milliseconds):
        self.milliseconds, self.timed = milliseconds, 0

    def __call__(self, run, *, captured=True):
        run()
        self.timed += 1
        return self.milliseconds[(self.timed - 1) % len(self.milliseconds)]


@pytest.fixture
def gpu(monkeypatch):
    """A processor that says it is a GPU with FP8, and a GPU's table of tuned choices."""
    kept = {}
    monkeypatch.setattr(products_choice, "capability_of", lambda _: 90)
    monkeypatch.setattr(products_choice.tuning, "device_of", lambda _: tuning.Device("Lamp 9000", 90))
    monkeypatch.setattr(products_choice.tuning, "choose", lambda op, key, default, **_: kept.get((op, key), default))
    save = lambda op, choices, _: kept.update({(op, key): one for key, one in choices.items()})  # noqa: E731
    monkeypatch.setattr(products_choice.tuning, "save", save)
    monkeypatch.setattr(products_choice, "_is_processor", lambda _: False)
    return kept


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("quantize", "times", "products"),
    [
        *((quantize, (2.0, 1.0), "int8") for quantize in ("none", "nf4")),
        ("none", (1.0, 0.99), "16"),
        ("nf4", (1.0, 3.0), "16"),
        ("fp8", (2.0, 1.0), "fp8"),
        ("fp8", (1.0, 0.99), "16"),
    ],
)
def test_auto_takes_what_is_clearly_faster_and_remembers(make, gpu, quantize, times, products):
    recipe = _recipe(make, quantize)
    source, clock = open_model(recipe.model.path), Clock(*times)
    found = choose_products(recipe, source, CPU, "bf16", lambda: clock)
    assert found.products == products
    assert found.reason
    assert clock.timed == len(gpu) > 0
    again = choose_products(recipe, source, CPU, "bf16", lambda: pytest.fail("the times are known"))
    assert again == found


@pytest.mark.parametrize(("share", "products"), [(1.0, "int8"), (0.6, "int8"), (0.2, "16")])
def test_auto_asks_what_a_whole_step_gains(share, products):
    """Products that take a tenth less are no gain where they are a fifth of the step."""
    assert clearly_fastest({"16": 10.0, "int8": 9.0}, share) == products


def test_auto_weighs_long_times_in_full_and_keeps_none_that_a_table_cannot_hold(make, gpu):
    recipe = _recipe(make, "none")
    found = choose_products(recipe, open_model(recipe.model.path), CPU, "bf16", lambda: Clock(90.0, 70.0))
    assert found.products == "int8"
    assert not gpu


def test_auto_stays_with_16_bits_where_there_are_no_others(make, monkeypatch):
    recipe = _recipe(make, "none")
    source = open_model(recipe.model.path)
    for change in ({}, {"engine": "plain"}):
        one = recipe.model_copy(update={"train": recipe.train.model_copy(update=change)})
        found = choose_products(one, source, CPU, "bf16", lambda: pytest.fail("nothing is timed"))
        assert found.products == "16"
        assert found.reason
    monkeypatch.setattr(products_choice, "capability_of", lambda _: 75)
    assert "7.5" in choose_products(recipe, source, CPU, "bf16", lambda: pytest.fail("nothing is timed")).reason


def test_auto_takes_int8_on_a_card_without_fp8_but_rounds_no_fp8_weight_again(make, gpu, monkeypatch):
    monkeypatch.setattr(products_choice, "capability_of", lambda _: 86)
    recipe = _recipe(make, "nf4")
    source = open_model(recipe.model.path)
    assert choose_products(recipe, source, CPU, "bf16", lambda: Clock(2.0, 1.0)).products == "int8"
    stored = _recipe(make, "fp8")
    found = choose_products(stored, source, CPU, "bf16", lambda: pytest.fail("it is timed"))
    assert found.products == "16"
    assert "8.6" in found.reason


def test_auto_leaves_mixtures_in_16_bits(make, gpu, tmp_path):
    """FP8, the only one that experts do, costs more loss than auto may."""
    base = tiny_models.make("qwen3-moe", tmp_path / "mixture", tokenizer=True)
    found = choose_products(
        _recipe(make, "nf4"), open_model(str(base)), CPU, "bf16", lambda: pytest.fail("nothing is timed")
    )
    assert found.products == "16"
    assert "experts" in found.reason


def test_auto_stays_with_16_bits_where_one_of_several_cards_has_no_others(make, monkeypatch):
    recipe = _recipe(make, "none")
    devices = recipe.devices.model_copy(update={"strategy": "data_parallel", "gpus": [0, 1]})
    source, first = open_model(recipe.model.path), torch.device("cuda", 0)
    monkeypatch.setattr(products_choice, "why_not", lambda *_: "")
    monkeypatch.setattr(products_choice, "capability_of", lambda device: 75 if device.index else 89)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    shared = recipe.model_copy(update={"devices": devices})
    found = choose_products(shared, source, first, "bf16", lambda: pytest.fail("nothing is timed"))
    assert found.products == "16"
    assert "7.5" in found.reason


def test_what_the_recipe_says_is_taken_as_it_is(make):
    recipe = read_recipe(make("none", "fp8"))
    assert choose_products(recipe, open_model(recipe.model.path), CPU, "bf16") == ProductsChoice("fp8")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("quantize", "products", "changes", "named"),
    [
        ("fp8", "16", {"engine": '"plain"'}, "model.quantize"),
        ("none", "fp8", {"engine": '"plain"'}, "train.products"),
        ("none", "int8", {"engine": '"plain"'}, "train.products"),
        ("none", "mxfp8", {"engine": '"plain"'}, "train.products"),
    ],
)
def test_what_is_not_done_is_refused(make, quantize, products, changes, named):
    outcome = run_training(make(quantize, products, **changes))
    assert (outcome.exit_code, outcome.step) == (ExitCode.USAGE, 0)
    assert named in outcome.message


@pytest.mark.full
def test_the_engine_multiplies_with_codes(make, monkeypatch):
    """The recipe's setting reaches the decoder."""
    seen = []
    load = fast_engine.load_decoder
    monkeypatch.setattr(fast_engine, "load_decoder", lambda *args: seen.append(load(*args)) or seen[-1])
    run_training(make("none", "fp8", max_steps=1))
    stacks = [stack for layer in seen[0].decoder.layers for stack in layer.stacks]
    assert all(isinstance(stack.frozen, CodedWeight) for stack in stacks)


def test_a_processor_has_no_compute_capability():
    assert device_module.capability_of(CPU) is None


def _recipe(make, quantize):
    return read_recipe(make(quantize, "auto"))
