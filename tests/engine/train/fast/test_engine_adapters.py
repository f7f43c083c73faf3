"""The fast engine's adapters: made by seed and targets, masked, saved, and continued with."""

import pytest
import torch

from burnish_engine.contract.errors import UsageError

MASKED = {"masking": {"kind": "magma"}}


DORA = {"adapter": {"method": "dora", "dropout": 0.0}}


SAVED = [
    {},
    MASKED,
    {"masking": {"kind": "skip_update", "share": "pair"}},
    DORA,
    {**DORA, "model": {"quantize": "nf4"}},
]


@pytest.mark.full
@pytest.mark.parametrize("sections", SAVED)
def test_it_goes_on_from_what_it_saved(make, tmp_path, sections):
    """Adapter and optimizer carried over to a new engine: the same bits, under dropout and masks too."""
    whole, begun = make(sections=sections), make(sections=sections)
    expected = whole.steps(7)
    begun.steps(3)
    begun.engine.save_adapter(tmp_path / "adapter")
    resumed = make(sections=sections, adapter=tmp_path / "adapter", step=3)
    resumed.engine.restore_optimizer(begun.engine.optimizer_tensors())
    assert [(one.step, one.loss) for one in resumed.steps(4)] == [(one.step, one.loss) for one in expected[3:]]
    whole.engine.save_adapter(tmp_path / "whole")
    resumed.engine.save_adapter(tmp_path / "resumed")
    files = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert files[0] == files[1]


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_a_new_adapter_has_the_numbers_of_the_runs_seed(make, tmp_path, engine):
    weights = []
    for number, seed in enumerate([0, 1, 1]):
        folder = tmp_path / f"adapter {number}"
        make({"seed": seed}, {"train": {"engine": engine}}).engine.save_adapter(folder)
        weights.append((folder / "adapter_model.safetensors").read_bytes())
    assert weights[0] != weights[1] == weights[2]


@pytest.mark.full
def test_targets_that_the_model_lacks_are_told(make):
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    (note,) = make(sections={"adapter": {"targets": [*names, "router", "experts"]}}).engine.notes
    assert "router, experts" in note
    with pytest.raises(UsageError, match="router"):
        make(sections={"adapter": {"targets": ["q_proj", "router"]}})


@pytest.mark.full
def test_coverage_is_counted_on_the_adapter_that_was_made(make):
    some = make(sections={"adapter": {"targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}}).engine.facts.coverage
    assert {one.kind: one.reached / one.weights for one in some.kinds} == {"attention": 1.0, "feed-forward": 0.0}
    for engine in ("fast", "plain"):
        whole = make(sections={"train": {"engine": engine}}).engine.facts.coverage
        assert [one.reached for one in whole.kinds] == [one.weights for one in whole.kinds]


@pytest.mark.full
def test_a_resumed_adapter_is_what_its_file_says(make, tmp_path):
    """Also where the recipe would make another one by now."""
    began = make(sections={"adapter": {"rank": 2}})
    began.steps(1)
    began.engine.save_adapter(tmp_path / "saved")
    resumed = make(sections={"adapter": {"rank": 4}}, adapter=tmp_path / "saved")
    for name, value in began.engine.model.adapter.named().items():
        torch.testing.assert_close(resumed.engine.model.adapter.named()[name], value, rtol=0, atol=0)


@pytest.mark.full
def test_masked_matrices_sit_out_steps(make):
    """Which ones depends on the run's seed and the step alone; always and all the way is no masking."""
    usual, masked, again = make(), make(sections=MASKED), make(sections=MASKED)
    other = make({"seed": 1}, sections=MASKED)
    always = make(sections={"masking": {"kind": "skip_update", "probability": 1.0}})
    runs = usual, masked, again, other, always
    moved = []
    for one in runs:
        adapter = one.engine.model.adapter
        for _ in range(3):
            before = [matrix.clone() for matrix in adapter.tensors]
            one.steps(1)
            moved.append([not torch.equal(*pair) for pair in zip(before, adapter.tensors, strict=True)])
    plain, first, second, seeded, whole = (moved[index : index + 3] for index in range(0, 15, 3))
    assert all(map(all, plain[1:]))
    assert first == second != seeded
    assert 0.2 < sum(map(sum, first)) / sum(map(len, first)) < 0.8
    assert first[1] != first[2]
    assert whole == plain
    assert torch.equal(usual.engine.model.optimizer.param, always.engine.model.optimizer.param)


@pytest.mark.full
def test_lora_plus_makes_b_move_further(make):
    moved = {}
    for ratio in (1.0, 8.0):
        made = make({"warmup_share": 0.0, "weight_decay": 0.0, "schedule": '"constant"', "lora_plus_ratio": ratio})
        made.steps(1)
        moved[ratio] = {
            name: value.clone() for name, value in made.engine.model.adapter.named().items() if "lora_B" in name
        }
    assert moved[1.0]
    for name, one in moved[1.0].items():
        torch.testing.assert_close(moved[8.0][name], 8 * one, rtol=1e-4, atol=1e-6)
