"""Storage and products in FP8 by recipe, model and card; others are refused in words."""

import pytest

from burnish_engine.bench.shapes import shape
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.fp8_use import Fp8Use
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.device.fp8_choice import capability_of, check_fp8, fp8_use, why_not_fp8
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES

DENSE, MIXTURE = shape("qwen3-0.6b"), shape("olmoe-1b-7b")
EIGHT = Recipe.model_validate({"train": {"products": "fp8"}})
WHOLE = Recipe.model_validate({"train": {"products": "int8"}})
STORED = Recipe.model_validate({"model": {"quantize": "fp8"}})


@pytest.mark.parametrize(
    ("quantize", "products", "nf4", "use"),
    [
        ("none", "16", False, Fp8Use(False, False)),
        ("none", "auto", False, Fp8Use(False, False)),
        ("fp8", "16", False, Fp8Use(True, False)),
        ("fp8", "auto", False, Fp8Use(True, False)),
        ("fp8", "fp8", False, Fp8Use(True, True)),
        ("none", "fp8", False, Fp8Use(True, True)),
        ("nf4", "fp8", True, Fp8Use(False, True)),
        ("none", "int8", False, Fp8Use(True, True, "int8")),
        ("nf4", "int8", True, Fp8Use(False, True, "int8")),
        ("none", "fp8", True, Fp8Use(False, True)),  # a checkpoint in NF4
    ],
)
def test_storage_follows_from_both_settings(quantize, products, nf4, use):
    assert fp8_use(Recipe.model_validate({"model": {"quantize": quantize}}), products, nf4=nf4) == use


@pytest.mark.parametrize("capability", [*FP8_CAPABILITIES, None])
def test_cards_with_kernels_and_processors_do_it(capability):
    for recipe in (
        EIGHT,
        STORED,
        Recipe.model_validate({"train": {"products": "fp8"}, "adapter": {"method": "rslora"}}),
    ):
        check_fp8(recipe, DENSE, "bf16", capability)
    assert why_not_fp8(EIGHT, DENSE, "bf16", capability) == ""


@pytest.mark.parametrize("capability", [*CAPABILITIES, None])
def test_int8_is_done_by_every_card_with_kernels(capability):
    check_fp8(WHOLE, DENSE, "bf16", capability)
    assert why_not_fp8(WHOLE, DENSE, "bf16", capability, "int8") == ""


@pytest.mark.parametrize(
    ("recipe", "spec", "precision", "capability", "named"),
    [
        (EIGHT, DENSE, "bf16", 86, "8.6"),
        (WHOLE, DENSE, "bf16", 75, "7.5.*INT8"),
        (WHOLE, DENSE, "fp32", 86, "fp32"),
        (WHOLE, MIXTURE, "bf16", 86, "64 experts"),
        (EIGHT, DENSE, "bf16", 100, "10.0"),
        (EIGHT, DENSE, "fp32", 89, "fp32"),
        (EIGHT, MIXTURE, "bf16", 89, "64 experts"),
        (STORED, MIXTURE, "bf16", 89, "64 experts"),
        (Recipe.model_validate({"train": {"products": "mxfp8"}}), DENSE, "bf16", 120, "RTX 50"),
    ],
)
def test_what_is_not_done_is_refused_in_words(recipe, spec, precision, capability, named):
    with pytest.raises(UsageError, match=named) as refused:
        check_fp8(recipe, spec, precision, capability)
    assert refused.value.remedy
    check_fp8(Recipe(), spec, precision, capability)


def test_a_run_that_began_in_fp8_is_not_sent_back_to_its_recipe():
    with pytest.raises(UsageError) as refused:
        check_fp8(EIGHT, DENSE, "bf16", 86, began=True)
    assert "train.products" not in refused.value.remedy


def test_an_unknown_card_counts_as_one_without():
    assert capability_of(None) is None
    assert capability_of(GpuFacts(index=0, name="Lamp 9000", compute_capability=(8, 9))) == 89
    assert capability_of(GpuFacts(index=0, name="Lamp 9000")) not in FP8_CAPABILITIES
