"""Which run comes next, and that duels of equal sides get no more winners than they say."""

import math
import random

import pytest

from burnish_engine.duel.planner import grid_scores, next_run, ready_runs, run_counts
from burnish_engine.duel.sides.spec import DuelOptions, Side, compared_seeds
from burnish_engine.duel.verdict.rates import beats, best_rate, complete_rates, grid_rate, is_better, pair_level

SIDES = [Side(letter="A", name="a", file="a.toml", rate=1e-3), Side(letter="B", name="b", file="b.toml", rate=1e-2)]


def play(loss, sides=SIDES, **options):
    """All runs of a duel in their order, with their scores; `loss` takes a run."""
    options, scores = DuelOptions(**options), {}
    while (spec := next_run(sides, options, 7, scores)) is not None:
        assert spec not in scores
        scores[spec] = loss(spec)
        assert len(scores) <= run_counts(sides, options)[1]
    return scores


def play_at_once(loss, width, sides=SIDES, **options):
    """The same with up to `width` runs at once, which end in another order."""
    options, scores, order = DuelOptions(**options), {}, random.Random(3)
    while ready := ready_runs(sides, options, 7, scores):
        assert not set(ready) & scores.keys()
        assert len(set(ready)) == len(ready)
        assert ready[0] == next_run(sides, options, 7, scores)
        running = ready[:width]
        order.shuffle(running)
        scores |= {spec: loss(spec) for spec in running}
    return scores


def bowl(spec, best=1.0, steep=1.0):
    """Lowest at `best` times the side's own rate."""
    return 2.0 + steep * math.log10(spec.rate / SIDES[spec.side % 2].rate / best) ** 2


def test_a_grid_then_seeds_with_sides_taking_turns():
    played = play(bowl)
    assert len({spec.id for spec in played}) == len(played), "each has a folder of its own"
    runs = [(spec.phase, "ab"[spec.side], spec.seed, spec.rate) for spec in played]
    assert runs == [
        ("grid", "a", 7, 3e-4), ("grid", "b", 7, 3e-3),
        ("grid", "b", 7, 1e-2), ("grid", "a", 7, 1e-3),
        ("grid", "a", 7, 3e-3), ("grid", "b", 7, 3e-2),
        ("seeds", "a", 8, 1e-3), ("seeds", "b", 8, 1e-2),
        ("seeds", "b", 9, 1e-2), ("seeds", "a", 9, 1e-3),
        ("seeds", "a", 10, 1e-3), ("seeds", "b", 10, 1e-2),
    ]  # fmt: skip


def test_a_grid_is_extended_where_the_best_is_at_its_edge_and_within_bounds():
    scores = play(lambda spec: bowl(spec, best=9.0) if spec.side == 0 else bowl(spec, best=1e-9))
    assert list(grid_scores(0, 7, scores)) == pytest.approx([3e-4, 1e-3, 3e-3, 9e-3, 2.7e-2])
    assert list(grid_scores(1, 7, scores)) == pytest.approx([2.7e-4, 9e-4, 3e-3, 1e-2, 3e-2])
    assert grid_rate(SIDES[0], grid_scores(0, 7, scores)) == pytest.approx(9e-3)
    assert len(play(lambda spec: bowl(spec, best=1e9), extensions=0)) == 12


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("trial", range(12))
def test_runs_made_at_once_are_those_made_in_turn(trial, width):
    """With grids that are extended, rates that cannot be told apart, second looks and all."""

    def loss(spec):
        noise = random.Random(f"{trial}/{spec.id}").gauss(0, 0.05)
        return bowl(spec, best=[1.0, 9.0, 0.05][trial % 3], steep=0.02 * (trial % 4)) + noise

    assert play_at_once(loss, width) == play(loss)


def test_no_rate_above_what_a_recipe_may_have():
    sides = [Side(letter="A", name="a", file="a.toml", rate=0.5), SIDES[1]]
    scores = play(lambda spec: -spec.rate, sides=sides)
    assert max(spec.rate for spec in scores) <= 1.0


def test_one_factor_alone_needs_no_grid():
    scores = play(bowl, factors=[1.0], seeds=4)
    assert len(scores) == 8
    assert {(spec.phase, spec.rate) for spec in scores} == {("seeds", 1e-3), ("seeds", 1e-2)}


def test_seeds_of_both_sides_are_pairs_and_not_the_grids():
    scores = play(bowl, seeds=5)
    for side in (0, 1):
        assert {s.seed for s in scores if s.side == side and s.phase == "seeds"} == set(compared_seeds(7, 5))
    assert 7 not in compared_seeds(7, 5)
    assert compared_seeds(2**32 - 1, 3) == [0, 1, 2]


def test_a_grid_that_diverged_goes_down_and_a_side_that_always_does_is_counted():
    scores = play(lambda spec: math.inf if spec.side == 0 else bowl(spec))
    grid = grid_scores(0, 7, scores)
    assert len(grid) == 5
    assert grid_rate(SIDES[0], grid) == min(grid)
    rate_scores = complete_rates(0, compared_seeds(7, 3), scores)
    assert list(rate_scores.values()) == [[math.inf] * 3]


def test_the_loser_gets_a_second_look_at_a_rate_that_the_grid_could_not_tell():
    noise = {8: 0.0, 9: 0.01, 10: -0.01}

    def loss(spec):
        if spec.side == 1:
            return 1.0
        if spec.phase == "grid":
            return {3e-4: 2.0, 1e-3: 1.20, 3e-3: 1.21}[spec.rate]
        return {1e-3: 1.2, 3e-3: 1.0}[spec.rate] + noise[spec.seed]

    scores = play(loss)
    again = [spec for spec in scores if spec.phase == "second look"]
    assert [(spec.side, spec.rate, spec.seed) for spec in again] == [(0, 3e-3, 8), (0, 3e-3, 9), (0, 3e-3, 10)]
    rate_scores = [complete_rates(side, compared_seeds(7, 3), scores) for side in (0, 1)]
    assert best_rate(rate_scores[0]) == 3e-3
    assert not beats(rate_scores[1], rate_scores[0], 0.95)


def test_no_second_look_where_the_grid_was_clear():
    scores = play(lambda spec: bowl(spec) + spec.side * 0.5 + 1e-3 * (spec.seed % 3))
    assert not [spec for spec in scores if spec.phase == "second look"]


def test_the_plan_does_not_depend_on_when_it_is_asked():
    """As after an interruption: what is next follows from what has ended, in whatever order it is kept."""
    scores = play(bowl)
    runs = list(scores)
    for count in range(len(runs)):
        done = runs[:count]
        random.Random(count).shuffle(done)
        assert next_run(SIDES, DuelOptions(), 7, {spec: scores[spec] for spec in done}) == runs[count]


def test_diverged_runs_are_worse_than_any_and_decide_only_with_enough_pairs():
    assert not is_better([1.0] * 3, [math.inf] * 3, 0.95)
    assert is_better([1.0] * 6, [2.0, 2.1, 2.0, 1.9, 2.0, math.inf], 0.95)
    assert not is_better([2.0] * 6, [1.0] * 5 + [math.inf], 0.95)
    assert not is_better([math.inf] * 9, [math.inf] * 9, 0.95)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize(("steep", "count"), [
    pytest.param(0.0, 2, id="flat-2"), pytest.param(4.0, 2, id="neighbors-near-2"),
    pytest.param(16.0, 2, id="neighbors-apart-2"), pytest.param(4.0, 3, id="neighbors-near-3"),
    pytest.param(0.0, 3, id="flat-3", marks=pytest.mark.long),
    pytest.param(16.0, 3, id="neighbors-apart-3", marks=pytest.mark.long),
])  # fmt: skip
def test_equal_sides_get_a_winner_as_rarely_as_is_said(steep, seeds, count):
    """Simulated: the loss is a bowl over the rate, plus what a seed does to all, plus what it does to each run."""
    chance = random.Random(int(steep) * 100 + seeds + count)
    sides = [*SIDES, SIDES[0]][:count]
    level, winners, trials = pair_level(0.95, count), 0, 700
    for _ in range(trials):
        shared = {seed: chance.gauss(0, 0.5) for seed in range(30)}

        def loss(spec, shared=shared):
            return steep * 0.1 * bowl(spec) + shared[spec.seed] + chance.gauss(0, 0.1)

        scores = play(loss, sides=sides, seeds=seeds)
        rate_scores = [complete_rates(side, compared_seeds(7, seeds), scores) for side in range(count)]
        winners += any(
            beats(rate_scores[one], rate_scores[other], level)
            for one in range(count)
            for other in range(count)
            if one != other
        )
    assert winners / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.full
@pytest.mark.slow
def test_a_real_difference_is_found():
    chance, found = random.Random(1), 0
    for _ in range(100):
        scores = play(lambda spec: bowl(spec, steep=5.0) + 0.5 * spec.side + chance.gauss(0, 0.05))
        rate_scores = [complete_rates(side, compared_seeds(7, 3), scores) for side in (0, 1)]
        assert not beats(rate_scores[1], rate_scores[0], 0.95)
        found += beats(rate_scores[0], rate_scores[1], 0.95)
    assert found > 85
