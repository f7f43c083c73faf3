"""Verdicts: what is told apart, what is not, and what is not measured."""

import math
import random

import pytest

from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.duel.measures.instability import Instability
from burnish_engine.duel.sides.spec import DuelOptions
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import conclude, joules_per_1000
from burnish_engine.duel.verdict.verdict import few_seeds_note, headline

from support.runs.duels import duel_of, outcome, pairs, sides


def by_measure(state):
    return {verdict.measure: verdict for verdict in state.verdicts}


def test_a_clear_difference_has_a_winner_and_an_interval_around_it():
    verdict = by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.3, 2.41, 2.49])))["held_out_loss"]
    assert (verdict.kind, verdict.winner, verdict.pairs) == ("winner", 0, 3)
    assert verdict.low < verdict.difference < verdict.high < 0
    assert verdict.difference == pytest.approx(-0.3)
    assert "plain at 0.001 is better" in verdict.text
    assert "plain at 0.001 is better, with a perplexity 25.9 % lower." in verdict.text, "the winner's, whoever is first"
    verdict = by_measure(duel_of(pairs([2.3, 2.41, 2.49], [2.0, 2.1, 2.2])))["held_out_loss"]
    assert "fancy at 0.001 is better, with a perplexity 25.9 % lower." in verdict.text
    assert "95 % interval" in verdict.text


def test_a_lower_mean_alone_wins_nothing():
    state = duel_of(pairs([2.0, 2.5, 2.1], [2.2, 2.3, 2.6]))
    verdict = by_measure(state)["held_out_loss"]
    assert verdict.difference < 0
    assert (verdict.kind, verdict.winner) == ("not distinguishable", None)
    said = headline(state.verdicts)
    assert all(part in said for part in ("plain at 0.001", "fancy at 0.001", "not distinguishable", "held-out loss"))


def test_equal_values_are_called_equal():
    verdicts = by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.0, 2.1, 2.2])))
    assert {verdict.kind for verdict in verdicts.values()} == {"equal"}
    assert {verdict.winner for verdict in verdicts.values()} == {None}


def test_diverged_runs_are_counted_and_not_dropped():
    runs = [
        outcome(side, 2.0 + 0.5 * side, seed=seed, diverged=side == 1 and seed == 2) for seed in (1, 2, 3)
        for side in (0, 1)
    ]  # fmt: skip
    verdict = by_measure(duel_of(runs))["held_out_loss"]
    assert (verdict.kind, verdict.difference, verdict.diverged) == ("not distinguishable", None, (0, 1))
    assert "fancy at 0.001: 1 of 3 runs diverged" in verdict.text
    many = [
        outcome(side, 2.0 + 0.5 * side, seed=seed, diverged=side == 1 and seed > 2) for seed in range(1, 8)
        for side in (0, 1)
    ]  # fmt: skip
    verdict = by_measure(duel_of(many))["held_out_loss"]
    assert (verdict.kind, verdict.winner) == ("winner", 0)
    assert "sign test" in verdict.text


def test_costs_are_compared_by_ratio():
    speeds = {(0, 1): 100.0, (0, 2): 102.0, (0, 3): 98.0, (1, 1): 50.0, (1, 2): 50.5, (1, 3): 49.5}
    runs = [outcome(side, 2.0, seed=seed, tokens_per_s=speed) for (side, seed), speed in speeds.items()]
    verdict = by_measure(duel_of(runs))["tokens_per_s"]
    assert (verdict.winner, verdict.difference) == (0, pytest.approx(1.0, abs=0.01))
    assert "plain is better. plain against fancy: +100.0 %" in verdict.text.replace("+99.9", "+100.0")
    less = [outcome(side, 2.0, seed=seed, memory_bytes=10**9 * (1 + side)) for seed in (1, 2, 3) for side in (0, 1)]
    assert by_measure(duel_of(less))["memory_bytes"].winner == 0
    assert joules_per_1000(outcome(0, 2.0, tokens=2500, joules=300.0)) == 120.0


@pytest.mark.parametrize(
    ("measure", "winner"), [("tokens_per_s", 0), ("memory_bytes", 1), ("joules_per_1000_tokens", 1)]
)
def test_costs_are_compared_between_runs_of_the_same_seed(measure, winner):
    """Seeds differ far more than sides, and runs end in any order."""
    runs = []
    for side, seed in [(0, 2), (1, 3), (1, 1), (0, 1), (1, 2), (0, 3)]:
        cost = 4.0**seed * (1.0 if side == 0 else 0.9)
        runs.append(outcome(side, 2.0, seed=seed, tokens_per_s=cost, memory_bytes=int(cost * 2**30), joules=cost))
    verdict = by_measure(duel_of(runs))[measure]
    assert (verdict.winner, verdict.pairs) == (winner, 3)
    assert verdict.difference == pytest.approx(1 / 0.9 - 1, abs=1e-6)


def test_a_difference_below_what_a_reading_is_good_to_is_none():
    runs = [outcome(side, 2.0, seed=seed, memory_bytes=10**9 + side * 10**6) for seed in (1, 2, 3) for side in (0, 1)]
    assert by_measure(duel_of(runs))["memory_bytes"].kind == "not distinguishable"


def test_what_was_not_measured_is_said():
    verdicts = by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.0, 2.1, 2.3], joules=None)))
    energy = verdicts["joules_per_1000_tokens"]
    assert energy.kind == "not measured"
    assert "plain against fancy" in energy.text
    assert "no pair" in energy.text
    partly = pairs([2.0, 2.1, 2.2], [2.0, 2.1, 2.3])
    partly[0] = partly[0].model_copy(update={"joules": None})
    assert by_measure(duel_of(partly))["joules_per_1000_tokens"].pairs == 2


def test_events_are_compared_by_their_number():
    def runs(ours, theirs):
        return [
            outcome(side, 2.0, seed=seed, instability=Instability(loss_spikes=count))
            for seed in (1, 2, 3)
            for side, count in enumerate((ours, theirs))
        ]

    assert by_measure(duel_of(runs(0, 1)))["instability"].kind == "not distinguishable"
    assert by_measure(duel_of(runs(0, 9)))["instability"].winner == 0


def test_three_sides_share_the_chance_of_a_wrong_winner():
    losses = {0: [2.0, 2.1, 2.2], 1: [2.3, 2.41, 2.49], 2: [2.31, 2.40, 2.52]}
    runs = [outcome(side, loss, seed=seed) for side, of in losses.items() for seed, loss in enumerate(of, 1)]
    state = duel_of(runs, names=("a", "b", "c"))
    found = [verdict for verdict in state.verdicts if verdict.measure == "held_out_loss"]
    assert [verdict.sides for verdict in found] == [(0, 1), (0, 2), (1, 2)]
    assert all(verdict.level == pytest.approx(1 - 0.05 / 3) for verdict in found)
    assert "98.33 %" in found[2].text


@pytest.mark.full
@pytest.mark.slow
def test_costs_of_equal_sides_get_a_winner_as_rarely_as_is_said():
    """Readings that drift with the machine, jump, or come in coarse steps, the same for both sides in truth."""
    chance, trials = random.Random(4), 600
    winners = dict.fromkeys(("tokens_per_s", "memory_bytes", "joules_per_1000_tokens", "instability"), 0)
    for _ in range(trials):
        runs = []
        for seed in (1, 2, 3):
            for side in (0, 1) if seed % 2 else (1, 0):
                drift = math.exp(chance.gauss(-0.05 * seed, 0.03))
                runs.append(
                    outcome(
                        side, 2.0, seed=seed, tokens_per_s=100 * drift, joules=300 / drift, training=[], evaluations=[],
                        memory_bytes=2 * 10**9 + chance.choice((-1, 0, 1)) * 2 * 10**7,
                        instability=Instability(loss_spikes=chance.choice((0, 0, 1, 1, 2))),
                    )
                )  # fmt: skip
        for verdict in conclude(sides("a", "b"), DuelOptions(), 0, runs):
            if verdict.measure in winners:
                winners[verdict.measure] += verdict.winner is not None
    for measure, count in winners.items():
        assert count / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials), measure


def test_what_three_pairs_show_is_said():
    text = few_seeds_note(3, 0.95)
    assert "larger than 2.5 times" in text
    assert "0.25, which is too much" in text
    assert "too much" not in few_seeds_note(6, 0.95)


def test_a_duel_survives_its_file():
    state = duel_of(pairs([2.0, 2.1, math.nan], [2.3, 2.4, 2.5]))
    assert math.isnan(state.outcomes[4].held_out_loss)
    again = DuelState.model_validate_json(state.model_dump_json())
    assert again.model_dump_json() == state.model_dump_json()
    assert again.verdicts == state.verdicts


def preferring(ours, theirs, chosen=(1.0, 2.0)):
    """Runs of two objectives that prefer these shares of the held-out pairs, seed by seed; their losses say nothing."""
    return [
        outcome(side, 0.1 + side, seed=place + 1, judge="pair_error", held_out_pairs=100, pair_accuracy=shares[place],
                chosen_loss=chosen[side] + 0.01 * place)
        for place in range(len(ours))
        for side, shares in enumerate((ours, theirs))
    ]  # fmt: skip


def test_objectives_are_judged_by_the_pairs_they_prefer_and_not_by_their_losses():
    state = duel_of(preferring([0.6, 0.61, 0.59], [0.9, 0.92, 0.91]), judge="pair_error")
    verdict = by_measure(state)["pair_error"]
    assert (verdict.kind, verdict.winner, verdict.form) == ("winner", 1, "points")
    assert verdict.difference == pytest.approx(0.31)
    assert "+31.0 points" in verdict.text
    assert "perplexity" not in verdict.text
    assert headline(state.verdicts).startswith("fancy at 0.001 prefers")
    assert "held_out_loss" not in by_measure(state)


def test_one_pair_more_with_every_seed_is_not_enough():
    assert by_measure(duel_of(preferring([0.9] * 3, [0.91] * 3), judge="pair_error"))["pair_error"].winner is None
    assert by_measure(duel_of(preferring([0.9] * 3, [0.93] * 3), judge="pair_error"))["pair_error"].winner == 1


def test_the_loss_of_chosen_replies_is_compared_beside_the_pairs():
    state = duel_of(preferring([0.6, 0.7, 0.8], [0.7, 0.6, 0.8]), judge="pair_error")
    assert by_measure(state)["pair_error"].winner is None
    loss = by_measure(state)["chosen_loss"]
    assert (loss.winner, loss.form) == (0, "nats")
    assert loss.difference == pytest.approx(-1.0)
    assert "chosen_loss" not in by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.0, 2.2, 2.1])))


def test_forgetting_is_compared_where_it_was_measured():
    after = {0: 3.1, 1: 3.4}
    runs = [
        outcome(side, 2.0, seed=seed, forgetting=Forgetting(before=3.0, after=after[side] + seed / 1000, tokens=2000))
        for seed in (1, 2, 3) for side in (0, 1)
    ]  # fmt: skip
    found = by_measure(duel_of(runs))["forgetting"]
    assert (found.winner, found.difference) == (0, pytest.approx(-0.3))
    assert "forgetting" not in by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.0, 2.2, 2.1])))


def scored(ours, theirs, *, rows=50):
    """Runs of two sides with these shares of right replies, seed by seed."""
    return [
        outcome(side, 2.0 + 0.01 * seed, seed=seed, task_share=shares[seed - 1], task_rows=rows)
        for seed in range(1, len(ours) + 1)
        for side, shares in enumerate((ours, theirs))
    ]


def test_the_score_of_the_task_has_a_winner_only_beyond_its_seeds_and_its_rows():
    verdict = by_measure(duel_of(scored([0.9, 0.92, 0.9], [0.5, 0.56, 0.52])))["task_score"]
    assert (verdict.kind, verdict.winner, verdict.form) == ("winner", 0, "points")
    assert verdict.low < verdict.difference < verdict.high
    assert "points" in verdict.text
    one_row_more = by_measure(duel_of(scored([0.52, 0.52, 0.52], [0.5, 0.5, 0.5])))["task_score"]
    assert one_row_more.kind == "not distinguishable"
    assert "task_score" not in by_measure(duel_of(pairs([2.0, 2.1, 2.2], [2.3, 2.4, 2.5])))
