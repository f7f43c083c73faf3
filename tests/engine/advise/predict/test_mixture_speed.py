"""The predicted times of steps of mixtures of experts against an H100's."""

import pytest

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import parse_weight_places
from burnish_engine.contract.recipe.recipe_train import AdapterSection

from support.machines.predicted_steps import H100, seconds

WHOLE_QWEN3 = "input:1,offloaded:1,input:3,offloaded:1,input:2,offloaded:1,input:2,offloaded:1,input:3,offloaded:1,\
input:2,offloaded:1,input:2,offloaded:1,input:3,offloaded:1,input:2,offloaded:1,input:2,offloaded:1,input:3,\
offloaded:1,input:2,offloaded:1,input:2,offloaded:1,input:3,offloaded:1,input:1,narrow:1"
WHOLE_GPT_OSS = "input:1,offloaded:1,input:2,host:1,offloaded:1,input:3,offloaded:1,input:2,offloaded:1,input:2,\
host:1,offloaded:1,input:3,offloaded:1,input:1,products:2"


@pytest.mark.parametrize(
    ("name", "first", "measured"),
    [("qwen3-30b-a3b", 4, 66.0), ("qwen3-30b-a3b", 12, 146.1), ("gpt-oss-20b", 3, 99.2), ("gpt-oss-20b", 6, 148.5)],
)
def test_mixtures_in_fp8_that_were_measured_are_predicted(name, first, measured):
    hopper = H100.model_copy(update={"compute_capability": (9, 0)})
    use = EightBitUse("", "fp8")
    found = 1000 * seconds(name, 16384, "products", gpu=hopper, nf4=True, first=first, eight_bits=use)
    assert found == pytest.approx(measured, rel=0.06)  # Qwen3: 4 ms of head too much, as in 16 bits


@pytest.mark.parametrize(
    ("name", "first", "tokens", "nf4", "layers", "measured"),
    [
        ("qwen3-30b-a3b", 4, 16384, True, "products", 80.7),
        ("qwen3-30b-a3b", 12, 16384, True, "products", 180.6),
        ("qwen3-30b-a3b", 4, 4096, True, "products", 26.5),
        ("qwen3-30b-a3b", 12, 16384, False, "products", 168.7),
        ("qwen3-30b-a3b", 0, 16384, True, WHOLE_QWEN3, 814.5),
        ("olmoe-1b-7b", 0, 16384, False, "products", 208.4),
        ("gpt-oss-20b", 3, 16384, True, "products", 122.3),
        ("gpt-oss-20b", 6, 16384, True, "products", 186.7),
        ("gpt-oss-20b", 0, 16384, True, WHOLE_GPT_OSS, 708.8),
        ("gpt-oss-20b", 0, 4096, True, "input", 252.7),
    ],
)
def test_mixtures_that_were_measured_are_predicted(name, first, tokens, nf4, layers, measured):
    hopper = H100.model_copy(update={"compute_capability": (9, 0)})
    away = "offloaded" in layers
    found = 1000 * seconds(name, tokens, layers, gpu=hopper, nf4=nf4, first=first, embedding_on_host=away)
    assert found == pytest.approx(measured, rel=0.06)


# The solver's plans for a whole model and 2,048 tokens: a card of 24 GiB, of 12 and twice of 8 (tests/bench/LOG.md).
SMALL_CARDS = {
    "qwen3-30b-a3b in 24": ("rotated", "", 176.1),
    "qwen3-30b-a3b in 8": (
        "attention:4,input:1,attention:9,input:1,attention:9,input:1,attention:8,input:1,attention:9,input:1,attention:3,"
        "narrow:1",
        "host:1,card:1," + "host:3,card:1," * 11 + "host:2",
        463.0,
    ),
    "gpt-oss-20b in 12": (
        "attention:4,input:1,attention:7,input:1,attention:7,input:1,attention:1,products:2",
        "card:2,host:1,card:3,host:1,card:3,host:1,card:3,host:1,card:3,host:1,card:3,host:1,card:1",
        157.3,
    ),
    "gpt-oss-20b in 8": (
        "input:1,attention:1,input:2,attention:1,input:2,attention:1,input:2,attention:1,input:3,attention:1,input:2,"
        "attention:1,input:2,attention:1,input:1,attention:2",
        "host:1,card:1,host:1,card:1,host:2,card:1,host:2,card:1,host:1,card:1,host:2,card:1,host:2,card:1,host:1,"
        "card:1,host:2,card:1,host:1",
        313.0,
    ),
}


@pytest.mark.parametrize("case", SMALL_CARDS)
def test_mixtures_on_small_cards_that_were_measured_are_predicted(case):
    name, levels, weights, measured = case.split(" ")[0], *SMALL_CARDS[case]
    given = {
        "gpu": H100.model_copy(update={"compute_capability": (9, 0)}),
        "nf4": name.startswith("qwen"),
        "span": 1059,
    }
    if weights:
        given |= {"weights": parse_weight_places(weights), "embedding_on_host": True}
    if case == "gpt-oss-20b in 12":
        given["adapter"] = AdapterSection(rank=8, targets=["q_proj", "k_proj", "v_proj", "o_proj"])
    assert 1000 * seconds(name, 2048, levels, **given) == pytest.approx(measured, rel=0.05)
