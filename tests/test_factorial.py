"""The factorial experiments of `tests/bench`: which runs come next, and that known effects are found."""

import random
from dataclasses import asdict

import pytest

from bench.quality.factorial import designs, ready
from bench.quality.factorial_effects import FACTORS, LOSS, MEASURES, drawing, effects, skip_update


@pytest.fixture(params=["lora", "scratch"])
def design(request, tmp_path):
    return designs("model", tmp_path, tiny=False)[request.param]


def loss_of(design, job):
    """Return a loss whose best rate is the cell's own, three times AdamW's with Magma."""
    own = 3e-3 if design.cells()[job.cell]["masking"] == "magma" else 1e-3
    return 3.0 + abs(job.rate / own - 1.0)


def row_of(design, job, loss, **more):
    return (
        asdict(job)
        | design.cells()[job.cell]
        | {"ended": "finished", "held_out_loss": loss, "loss_spikes": 0, "gradient_spikes": 0, "skipped_steps": 0}
        | {"non_finite": 0, "tokens": 1000, **more}
    )


def all_runs(design, loss_of=loss_of):
    """Make all runs that are ready, seven at a time, until none is left."""
    rows = []
    while left := ready(design, rows):
        rows += [row_of(design, job, loss_of(design, job)) for job in left[:7]]
    return rows


def test_rates_come_first_then_seeds_at_the_best_one_then_runs_alone(design):
    rows = all_runs(design)
    cells = len(design.cells())
    phases = [row["phase"] for row in rows]
    assert [phases.count(phase) for phase in ("grid", "seeds", "alone")] == [
        3 * cells, len(design.seeds) * cells, cells
    ]  # fmt: skip
    assert set(phases[-cells:]) == {"alone"}
    assert len({tuple(row[name] for name in ("cell", "phase", "seed", "rate")) for row in rows}) == len(rows)
    for row in rows:
        if row["phase"] != "grid":
            assert row["rate"] == (3e-3 if row["masking"] == "magma" else 1e-3)


def test_a_run_that_is_there_is_not_made_again(design):
    rows = all_runs(design)
    again = ready(design, rows[:20])
    assert not {asdict(job)["rate"] for job in again if job.phase == "alone"}
    made = {(row["cell"], row["phase"], row["seed"], row["rate"]) for row in rows[:20]}
    assert not made & {(job.cell, job.phase, job.seed, job.rate) for job in again}


def test_known_effects_are_found(design):
    noise = random.Random(0)
    factors = FACTORS[design.name]

    def loss(_design, job):
        cell = design.cells()[job.cell]
        masking, schedule = (cell[name] == factors[name] for name in ("masking", "schedule"))
        known = -0.3 * masking + 0.1 * schedule + 0.2 * (masking and schedule)
        return 3.0 + 0.5 * job.seed + known + noise.gauss(0.0, 1e-4)

    rows = all_runs(design, loss)
    found = {one.name: one for one in effects(rows, design.name, LOSS)}
    expected = {"Magma": -0.2, "warmup-stable-decay": 0.2, "Magma with cosine": -0.3, "Magma with wsd": -0.1,
                "Magma x warmup-stable-decay": 0.2}  # fmt: skip
    for name, value in expected.items():
        assert found[name].mean == pytest.approx(value, abs=1e-3), name
        assert found[name].is_clear
    assert all(abs(one.mean) < 1e-3 for name, one in found.items() if name not in expected)
    assert skip_update(rows, design.name, LOSS).mean == pytest.approx(0.0, abs=1e-3)
    assert "Magma x warmup-stable-decay" in drawing(rows)


def test_a_diverged_run_has_no_loss_and_the_other_pairs_remain(design):
    def loss(_design, job):
        return 3.0 + 0.5 * job.seed - 0.1 * job.seed * (design.cells()[job.cell]["masking"] == "magma")

    rows = all_runs(design, loss)
    first = next(row for row in rows if row["phase"] == "seeds" and row["masking"] == "magma")
    first |= {"ended": "diverged", "held_out_loss": 9.0}
    masking = effects(rows, design.name, LOSS)[0]
    assert masking.mean == pytest.approx(-0.1 * sum(design.seeds) / len(design.seeds))


def test_speed_is_compared_within_the_other_factors(design):
    rows = all_runs(design)
    for row in rows:
        row["tokens_per_s"] = 1e5 * (1.2 if row["schedule"] == "wsd" else 1.0) * (1.0 + 0.1 * (row["masking"] == "off"))
    speed = next(measure for measure in MEASURES if measure.title.startswith("tokens/s"))
    found = {one.name: one for one in effects(rows, design.name, speed)}
    assert found["warmup-stable-decay"].mean == pytest.approx(0.18232, abs=1e-4), "the logarithm of 1.2"
    assert found["warmup-stable-decay"].is_clear
