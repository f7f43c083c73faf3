"""Measures of held-out pairs that all objectives share."""

import numpy as np
import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import EvaluationDone, HeldOutPairsDone
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.duel.measures.outcome import outcome_of
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.runs.compare.compare import compared_run
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.evaluation.validator import shared_measures
from burnish_engine.train.run import run_training

from support.models.tiny import write_jsonl
from support.runs.tiny_runs import of_kind, tiny_recipe


def a_pair(chosen_tokens):
    """A pair with so many supervised tokens in its chosen reply, and one in the other."""
    flags = np.array([False, *[True] * chosen_tokens, False, True])
    return Document(np.arange(len(flags), dtype=np.int32), flags, 1, "a.jsonl", rejected_from=chosen_tokens + 1)


def test_the_likelier_reply_is_preferred_and_the_loss_is_of_the_chosen_ones():
    log_probs = np.array([[-3.0, -4.0], [-5.0, -2.0], [-1.0, -9.0], [-1.0, -1.0]], dtype=np.float32)
    accuracy, loss = shared_measures(log_probs, [a_pair(tokens) for tokens in (3, 5, 1, 1)])
    assert accuracy == 0.5
    assert loss == pytest.approx(1.0)


def made(tmp_path, objective, watched="", **train):
    pairs = [{"prompt": f"Lamp {n}?", "chosen": "Gladly. " * (n % 3 + 1), "rejected": "No."} for n in range(12)]
    measured = f"[evaluation]\ngeneral_text = true\n{watched}"
    extra = f'{measured}[preference]\nobjective = "{objective}"\n'
    recipe = tiny_recipe(tmp_path, extra=extra, **{"max_steps": 2} | train)
    data = {"files": [str(write_jsonl(tmp_path / "pairs.jsonl", pairs))], "shape": "preference"}
    data["validation_files"] = [str(write_jsonl(tmp_path / "held.pairs.jsonl", pairs[:4]))]
    paths = create_run(
        recipe.model_copy(update={"data": recipe.data.model_copy(update=data)}), tmp_path / f"run {objective}"
    )
    assert run_training(paths).exit_code == ExitCode.DONE
    return paths


@pytest.mark.full
@pytest.mark.parametrize("objective", ["dpo", "orpo"])
def test_a_run_on_pairs_ends_with_them_and_a_duel_reads_them(tmp_path, objective):
    paths = made(tmp_path, objective)
    (found,) = of_kind(paths, HeldOutPairsDone)
    assert (found.step, found.pairs) == (2, 4)
    outcome = outcome_of(RunSpec(side=0, phase="seeds", seed=1, rate=1e-3), paths, tmp_path / "none", "pair_error")
    assert (outcome.held_out_pairs, outcome.pair_accuracy) == (4, found.accuracy)
    assert outcome.chosen_loss == found.chosen_loss
    assert outcome.score == 1 - found.accuracy
    assert outcome.forgetting is not None


def test_with_early_stopping_every_figure_is_of_the_weights_that_are_kept(tmp_path):
    patient = "every = 1\npatience = 2\nmin_improvement = 50.0\n"
    paths = made(tmp_path, "dpo", patient, max_steps=4, epochs=9.0, learning_rate=0.05)
    run, state = read_run(paths.events), read_state(paths)
    kept = run.best.step
    assert kept < run.step
    evaluations = {event.step: event for event in of_kind(paths, EvaluationDone)}
    assert evaluations[kept].margin != evaluations[run.step].margin
    assert run.held_out_pairs.step == kept
    assert {event.step for event in of_kind(paths, HeldOutPairsDone)} == set(evaluations) - {0}
    outcome = compared_run(paths)
    for figures in (state, outcome):
        assert (figures.accuracy, figures.margin) == (evaluations[kept].accuracy, evaluations[kept].margin)
    assert (state.evaluation_loss, outcome.held_out_loss) == (evaluations[kept].loss,) * 2


@pytest.mark.full
def test_the_loss_of_chosen_replies_is_that_of_the_log_probabilities_reported(tmp_path):
    paths = made(tmp_path, "dpo")
    last = of_kind(paths, EvaluationDone)[-1]
    (found,) = of_kind(paths, HeldOutPairsDone)
    assert last.tokens > 4
    assert -last.chosen_log_prob / found.chosen_loss == pytest.approx(
        round(-last.chosen_log_prob / found.chosen_loss * 4) / 4
    )


@pytest.mark.full
def test_a_run_on_plain_replies_has_none(tmp_path):
    assert not of_kind(made(tmp_path, "sft"), HeldOutPairsDone)
