"""Storage and products in FP8 by recipe, model and card; others are refused in words."""

import pytest

from burnish_engine.bench.shapes import shape
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.decoder.frozen.format_choice import (
    capability_of,
    check_eight_bits,
    eight_bit_use,
    why_not_eight,
)
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES, MXFP8_CAPABILITIES

DENSE, MIXTURE = shape("qwen3-0.6b"), shape("olmoe-1b-7b")
EIGHT = Recipe.model_validate({"train": {"products": "fp8"}})
WHOLE = Recipe.model_validate({"train": {"products": "int8"}})
BLOCKS = Recipe.model_validate({"train": {"products": "mxfp8"}})
STORED = Recipe.model_validate({"model": {"quantize": "fp8"}})


@pytest.mark.parametrize(
    ("quantize", "products", "nf4", "use"),
    [
        ("none", "16", False, EightBitUse()),
        ("none", "auto", False, EightBitUse()),
        ("fp8", "16", False, EightBitUse("fp8", "")),
        ("fp8", "auto", False, EightBitUse("fp8", "")),
        ("fp8", "fp8", False, EightBitUse("fp8", "fp8")),
        ("none", "fp8", False, EightBitUse("fp8", "fp8")),
        ("nf4", "fp8", True, EightBitUse("", "fp8")),
        ("none", "fp8", True, EightBitUse("", "fp8")),  # a checkpoint in NF4
        ("none", "int8", False, EightBitUse("int8", "int8")),
        ("nf4", "int8", True, EightBitUse("", "int8")),
        ("none", "mxfp8", False, EightBitUse("mxfp8", "mxfp8")),
        ("nf4", "mxfp8", True, EightBitUse("", "mxfp8")),
    ],
)
def test_storage_follows_from_both_settings(quantize, products, nf4, use):
    assert eight_bit_use(Recipe.model_validate({"model": {"quantize": quantize}}), products, nf4=nf4) == use


@pytest.mark.parametrize("capability", [*CAPABILITIES, None])
def test_int8_is_done_by_every_card_with_kernels(capability):
    check_eight_bits(WHOLE, DENSE, "bf16", capability)
    assert why_not_eight("int8", WHOLE, DENSE, "bf16", capability) == ""


@pytest.mark.parametrize("capability", [*MXFP8_CAPABILITIES, None])
def test_blocks_are_for_their_own_cards_and_processors(capability):
    assert set(MXFP8_CAPABILITIES) < set(FP8_CAPABILITIES)
    check_eight_bits(BLOCKS, DENSE, "bf16", capability)
    check_eight_bits(BLOCKS, shape("llama-3.2-1b"), "fp16", capability)


@pytest.mark.parametrize("capability", [*FP8_CAPABILITIES, None])
def test_cards_with_kernels_and_processors_do_it(capability):
    for recipe in (
        EIGHT,
        STORED,
        Recipe.model_validate({"train": {"products": "fp8"}, "adapter": {"method": "rslora"}}),
    ):
        check_eight_bits(recipe, DENSE, "bf16", capability)
    assert why_not_eight("fp8", EIGHT, DENSE, "bf16", capability) == ""


@pytest.mark.parametrize(
    ("recipe", "spec", "precision", "capability", "named"),
    [
        (EIGHT, DENSE, "bf16", 86, "8.6"),
        (EIGHT, DENSE, "bf16", 100, "10.0"),
        (EIGHT, DENSE, "fp32", 89, "fp32"),
        (EIGHT, MIXTURE, "bf16", 86, "8.6"),
        (STORED, MIXTURE, "bf16", 89, "64 experts"),
        (BLOCKS, DENSE, "bf16", 90, "RTX 50"),
        (BLOCKS, DENSE, "bf16", 89, "8.9"),
        (BLOCKS, DENSE, "fp32", 120, "fp32"),
        (BLOCKS, MIXTURE, "bf16", 120, "64 experts"),
        (BLOCKS, DENSE.model_copy(update={"hidden_size": 1000}), "bf16", None, "1,000"),
        (WHOLE, DENSE, "bf16", 75, "7.5.*INT8"),
        (WHOLE, DENSE, "fp32", 86, "fp32"),
        (WHOLE, MIXTURE, "bf16", 86, "64 experts"),
    ],
)
def test_what_is_not_done_is_refused_in_words(recipe, spec, precision, capability, named):
    with pytest.raises(UsageError, match=named) as refused:
        check_eight_bits(recipe, spec, precision, capability)
    assert refused.value.remedy
    check_eight_bits(Recipe(), spec, precision, capability)


@pytest.mark.parametrize("capability", [*FP8_CAPABILITIES, None])
def test_mixtures_multiply_in_fp8(capability):
    check_eight_bits(EIGHT, MIXTURE, "bf16", capability)


def test_a_run_that_began_in_fp8_is_not_sent_back_to_its_recipe():
    with pytest.raises(UsageError) as refused:
        check_eight_bits(EIGHT, DENSE, "bf16", 86, began=True)
    assert "train.products" not in refused.value.remedy


def test_an_unknown_card_counts_as_one_without():
    assert capability_of(None) is None
    assert capability_of(GpuFacts(index=0, name="Lamp 9000", compute_capability=(8, 9))) == 89
    assert capability_of(GpuFacts(index=0, name="Lamp 9000")) not in FP8_CAPABILITIES
