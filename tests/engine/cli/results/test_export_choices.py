"""What is said with `burnish export` goes before the run's recipe; what is not said stays as that has it."""

import pytest

from burnish_engine.cli.results.export import _suggested, _TrainedModel, _with_options
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.source import ModelSource

RECIPE = Recipe.model_validate({"export": {"importance": False, "merge_onto": "dequantized", "size_limit_mb": 90.0}})


def test_what_is_said_goes_first():
    said = _with_options(RECIPE, importance=True, merge_onto="base", size_limit=0.0).export
    assert (said.importance, said.merge_onto, said.size_limit_mb) == (True, "base", 0.0)
    assert said.quants == RECIPE.export.quants
    assert _with_options(RECIPE, importance=None, merge_onto="", size_limit=None) == RECIPE


def test_what_cannot_be_merged_onto_is_refused():
    with pytest.raises(UsageError, match="--merge-onto is 'nothing'") as refused:
        _with_options(RECIPE, importance=None, merge_onto="nothing", size_limit=None)
    assert "base or dequantized" in refused.value.remedy


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Open what a run trained: (recipe, name that was said) -> it."""
    source = ModelSource(tmp_path, "base", {}, None)
    monkeypatch.setattr("burnish_engine.cli.results.export.trained_model", lambda *_: (source, None))
    return lambda recipe, said="": _TrainedModel.open(RunPaths(tmp_path), recipe, "safetensors", said, leave_out="")


def test_a_model_is_called_as_said_or_as_its_run_or_after_its_base(opened):
    named = RECIPE.model_copy(update={"name": "desk"})
    assert [opened(*which).name for which in ((named, "said"), (named,), (RECIPE,))] == ["said", "desk", "base-tuned"]


@pytest.mark.parametrize(("limit", "suggested"), [(0.0, "fine.gguf"), (90.0, "small.gguf"), (10.0, "")])
def test_the_best_file_within_the_limit_is_suggested(opened, limit, suggested):
    def file(name, size, kl):
        return QuantFidelity(
            file=name, quant="Q8_0", bytes=size, sha256="", tensor_types={}, positions=9, mean_kl=kl, p99_kl=kl,
            top1_agreement=1.0, passed=True,
        )  # fmt: skip

    report = FidelityReport(
        model="m", architecture="llama", token_strings=1, token_mismatches=0, passed=True,
        files=[file("fine.gguf", 140_000_000, 0.001), file("small.gguf", 80_000_000, 0.1)],
    )  # fmt: skip
    recipe = _with_options(RECIPE, importance=None, merge_onto="", size_limit=limit)
    name, why = _suggested(report, opened(recipe))
    assert name == suggested
    assert why
