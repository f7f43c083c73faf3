"""GPUs that a recipe names, and those that are there."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.on_gpus import gpus_text, refuse_missing_gpu

PAIR = {0: "RTX 4090", 1: "RTX 4090"}


def test_a_gpu_that_is_there_is_not_refused():
    refuse_missing_gpu(1, PAIR)


def test_a_gpu_that_is_not_there_is_told_with_those_that_are_and_what_to_set():
    with pytest.raises(UsageError) as refused:
        refuse_missing_gpu(2, PAIR)
    assert "GPU 2" in refused.value.what
    assert "GPUs 0 and 1 (RTX 4090)" in refused.value.what
    assert "devices.gpus" in refused.value.remedy
    assert "[1]" in refused.value.remedy


@pytest.mark.parametrize(("names", "word"), [({0: "T4"}, "devices.gpus to [0]"), ({}, "devices.kind")])
def test_what_is_to_be_set_can_be_set(names, word):
    with pytest.raises(UsageError) as refused:
        refuse_missing_gpu(3, names)
    assert word in refused.value.remedy


def test_gpus_of_one_model_are_named_together():
    assert gpus_text({0: "A100", 1: "A100", 2: "A100"}) == "GPUs 0, 1 and 2 (A100)"
    assert gpus_text({0: "A100", 1: "T4"}) == "GPU 0 (A100), GPU 1 (T4)"
