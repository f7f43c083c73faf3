"""Duels made by hand, for tests of what judges and shows them."""

from burnish_engine.duel.measures.checks import fairness_checks
from burnish_engine.duel.measures.instability import Instability
from burnish_engine.duel.measures.outcome import CurvePoint, RunConditions, RunOutcome
from burnish_engine.duel.sides.differences import DuelDifference
from burnish_engine.duel.sides.spec import DuelOptions, RunSpec, Side, compared_seeds
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import conclude

CONDITIONS = {
    "data": "d" * 64, "order": "0" * 64, "schedule": "1" * 64, "held_out": "8 rows, 90 learned tokens evaluated",
    "steps": "10 steps, 1,000 tokens", "precision": "fp32", "device": "Lamp 9000, 8.0 GiB, 4 threads",
    "base": "b" * 64, "versions": {"burnish": "0.1.0", "torch": "2.13.0"},
}  # fmt: skip


def outcome(side, loss, *, seed=1, phase="seeds", rate=1e-3, diverged=False, conditions=(), **changes):
    """A run of ten steps that fell from 4 to its loss."""
    points = [
        CurvePoint(step=step, tokens=100 * step, seconds=2.0 * step, loss=4 + (loss - 4) * step / 10)
        for step in range(11)
    ]
    known = {
        "steps": 10, "tokens": 1000, "held_out_loss": None if diverged else loss, "tokens_per_s": 50.0,
        "memory_bytes": 2 * 10**9, "training_s": 20.0, "joules": 300.0, "instability": Instability(),
        "engine": "fast, packed", "training": points[1:], "evaluations": points[::5],
    }  # fmt: skip
    return RunOutcome(
        spec=RunSpec(side=side, phase=phase, seed=seed, rate=rate),
        ended="diverged" if diverged else "finished",
        message="At step 11 the loss is nan." if diverged else "",
        conditions=RunConditions.model_validate({**CONDITIONS, **dict(conditions)}),
        **{**known, **changes},
    )


def sides(*names):
    """Sides by name."""
    return [Side(letter="ABCDEFGH"[n], name=name, file=f"{name}.toml", rate=1e-3) for n, name in enumerate(names)]


def duel_of(outcomes, *, names=("plain", "fancy"), differences=None, judge="held_out_loss", tried=(), **options):
    """A finished duel over these runs, on as many seeds as they have."""
    seeds = {one.spec.seed for one in outcomes if one.spec.phase == "seeds"}
    chosen = DuelOptions(seeds=len(seeds), **options)
    assert seeds == set(compared_seeds(0, len(seeds)))
    if differences is None:
        differences = [DuelDifference(key="adapter.rank", values=[4, 8, 16][: len(names)], kind="compared")]
    state = DuelState(
        created=1.8e9, options=chosen, sides=sides(*names), seed=0, every=5, differences=differences,
        command="burnish duel a.toml b.toml", outcomes=outcomes, judge=judge,
        checks=fairness_checks(outcomes, sides(*names)), tried=list(tried),
    )  # fmt: skip
    verdicts = conclude(state.sides, chosen, 0, outcomes, judge, tried=state.tried)
    return state.model_copy(update={"verdicts": verdicts, "status": "finished"})


def pairs(ours, theirs, **changes):
    """Runs of two sides with these losses, seed by seed."""
    return [
        outcome(side, losses[place], seed=place + 1, **changes)
        for place in range(len(ours))
        for side, losses in enumerate((ours, theirs))
    ]
