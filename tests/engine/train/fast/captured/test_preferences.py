"""Steps over preferences: captured ones give the same bits as eager ones, in several buckets and with accumulation."""

from dataclasses import replace

import pytest
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.models.device.precision import exact_products

from support.models import tiny_models
from support.runs.preferences import labeled, pairs
from support.runs.steps import figures, train, trainer

SECTIONS = {
    "dpo": PreferenceSection(objective="dpo", rpo_alpha=0.2),
    "orpo": PreferenceSection(objective="orpo"),
    "simpo": PreferenceSection(objective="simpo", beta=2.0),
    "kto": PreferenceSection(objective="kto", beta=0.05),
}
LENGTHS = [(12, 20, 9, 9), (31, 20, 50, 12, 7, 9), (100, 90), (20, 20, 30, 11, 40, 30, 9, 9)]


def passes(objective):
    """Ten passes of several buckets; the mismatched replies of labeled ones are of another bucket at times."""
    found = []
    for seed in (3, 0, 2, 1, 0, 3, 1, 2, 0, 3):
        if objective != "kto":
            found.append(pairs(LENGTHS[seed], seed))
            continue
        batch, other = labeled(LENGTHS[seed], seed)
        longer, _ = labeled((*LENGTHS[seed], 30), seed + 9)
        found.append(replace(batch, mismatched=(other, replace(longer, reference=longer.reference * 1.05))))
    return found


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferences")
    base = tiny_models.make("qwen3", folder / "base")
    return base, {kind: tiny_models.lora(base, folder / kind, rank=5, dora=kind == "dora") for kind in ("lora", "dora")}


@pytest.mark.full
@pytest.mark.parametrize("objective", SECTIONS)
def test_steps_over_preferences_repeat_to_the_bit(adapters, objective):
    base, known = adapters
    options = {"objective": SECTIONS[objective], "rows": (64, 128, 256)}
    found = [train(trainer(base, known["lora"], **options), passes(objective), 2) for _ in range(2)]
    assert figures(found[0][0]) == figures(found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert all(one.taken for one in found[0][0])
    assert (objective == "kto") == any(one.preference.kl for one in found[0][0])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.float32}, {"dtype": torch.bfloat16}, {"dtype": torch.float16},
        {"dtype": torch.bfloat16, "quantize": True}, {"dtype": torch.bfloat16, "keep": ["input", "offloaded", "host"]},
        {"dtype": torch.bfloat16, "layers_on_host": frozenset({0})},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("objective", SECTIONS)
def test_captured_steps_over_preferences_give_the_bits_of_eager_ones(adapters, objective, options, kind):
    exact_products()
    base, known = adapters
    found = []
    for graphs in (True, False):
        changes = {"device": torch.device("cuda"), "graphs": graphs, "objective": SECTIONS[objective]}
        trained = trainer(base, known[kind], **changes, **options)
        results, param = train(trained, passes(objective), 2)
        assert trained.problem == ""
        assert all(trained.steps[layout].has_captured(estimates_kl=False) == graphs for layout in trained.ran)
        if objective == "kto":
            assert trained.estimated
            assert any(trained.steps[one].has_captured(estimates_kl=True) for one in trained.estimated) == graphs
        found.append((figures(results), param))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
