"""A file passes by what training changed: far from the trained model is what is half as far away as the base."""

import pytest

from burnish_engine.export.base.losses import ModelDistance
from burnish_engine.export.verify.limits import KlStatistics, hides_training, judge

MUCH = ModelDistance(loss=4.4, mean_kl=0.9, top1=0.55)  # 60 steps of the embedded model on the sample notes
LITTLE = ModelDistance(loss=3.0, mean_kl=0.004, top1=0.97)


def figures(kl, top1):
    return KlStatistics(2000, kl, 5 * kl, top1)


@pytest.mark.parametrize(
    ("quant", "kl", "top1", "gain"),
    [
        ("Q8_0", 0.0051, 0.956, 1.0),
        ("Q6_K", 0.0073, 0.958, 1.0),
        ("Q4_K_M", 0.0214, 0.919, 0.996),
        ("IQ4_XS", 0.0575, 0.868, 0.982),
        ("Q4_0", 0.3304, 0.699, 0.888),  # without an importance matrix
    ],
)
def test_files_of_the_sample_runs_pass(quant, kl, top1, gain):
    assert judge(quant, figures(kl, top1), MUCH, gain) == []


@pytest.mark.parametrize(
    ("quant", "kl", "top1", "base", "gain"),
    [
        ("Q4_K_M", 0.33, 0.5, MUCH, 0.8),
        ("Q4_K_M", 0.33, 0.8, ModelDistance(3.0, 0.5, 0.7), 0.8),  # further than half of training's way
        ("Q4_K_M", 0.33, 0.8, MUCH, 0.3),  # most of what was learned is gone
        ("Q4_K_M", 0.33, 0.62, ModelDistance(3.0, 0.9, 0.65), 0.8),  # the base chooses its tokens more often
        ("Q4_K_M", 0.33, 0.8, LITTLE, None),
        ("Q8_0", 0.06, 0.9, ModelDistance(3.0, 0.1, 0.9), 0.9),
        ("F16", 2e-4, 1.0, MUCH, 1.0),
        ("Q4_0", 0.6, 0.9, ModelDistance(9.0, 5.0, 0.1), 0.9),
        ("IQ4_XS", float("nan"), 1.0, MUCH, None),
        ("Q6_K", float("inf"), 1.0, None, None),
        ("Q8_0", 0.2, 0.9, None, None),
        ("Q4_0", 0.4, 0.4, None, None),
    ],
)
def test_what_training_did_not_make_is_refused(quant, kl, top1, base, gain):
    assert judge(quant, figures(kl, top1), base, gain)


def test_a_training_that_changed_almost_nothing_is_exported_as_near_as_rounding_comes():
    """Its file is further from it than its base is; the report says so."""
    assert judge("Q4_K_M", figures(0.05, 0.9), LITTLE, -2.0) == []
    assert hides_training("Q4_K_M", 0.05, LITTLE)
    assert not hides_training("Q4_K_M", 0.05, MUCH)
    assert not hides_training("Q4_K_M", 0.05, None)


def test_a_model_that_prefers_no_token_is_not_measured_by_its_first_choices():
    assert judge("Q4_0", figures(0.01, 0.3), LITTLE) == []


def test_a_family_that_llama_cpp_computes_otherwise_has_a_wider_limit():
    far = figures(0.05, 0.9)
    assert judge("F16", far, MUCH)
    assert judge("F16", far, MUCH, least=0.1) == []
