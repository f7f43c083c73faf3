"""`burnish suggest` for pairs of replies and for labeled ones: what it prints is planned and trained as it is."""

import pytest

from burnish_engine.advise.suggest.settings import learning_rate
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.advice import RunPlan, Suggestion
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe, parse_recipe

from support.machines.advice import CPU_24
from support.models.tiny import make_llama, write_jsonl

LONG = " ".join(["It is lit by a lamp that somebody left on."] * 14)


@pytest.fixture(autouse=True)
def a_processor(monkeypatch):
    """The commands see this machine."""
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: CPU_24)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny model."""
    return make_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def pairs(tmp_path):
    """Pairs whose rejected replies are far longer than the chosen ones."""
    rows = [{"prompt": f"Lamp {n}?", "chosen": f"Lit, {n}.", "rejected": f"{n}. {LONG}"} for n in range(12)]
    return write_jsonl(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def labels(tmp_path):
    """Replies of which one in four is labeled bad."""
    rows = [{"prompt": f"Lamp {n}?", "completion": f"It is lit, {n}.", "label": n % 4 > 0} for n in range(40)]
    return write_jsonl(tmp_path / "labels.jsonl", rows)


def run(capsys, *arguments):
    """Exit code and what was printed."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def suggestion(capsys, *arguments):
    code, text, wrong = run(capsys, "suggest", *arguments, "--json")
    assert code == ExitCode.DONE, wrong
    return Suggestion.model_validate_json(text)


def chosen(found, key):
    return next((choice for choice in found.choices if choice.key == key), None)


def train_two_steps(tmp_path, found):
    """Train a suggested recipe as it is, except that it ends after two steps and reads no general text."""
    recipe = parse_recipe(found.recipe)
    train = recipe.train.model_copy(update={"max_steps": 2})
    evaluation = recipe.evaluation.model_copy(update={"general_text": False})
    file = tmp_path / "two.toml"
    file.write_text(dump_recipe(recipe.model_copy(update={"train": train, "evaluation": evaluation})), encoding="utf-8")
    return main(["train", str(file), "--run-dir", str(tmp_path / "run")])


@pytest.mark.full
def test_pairs_get_a_recipe_of_dpo_that_is_planned_as_it_was_suggested(capsys, tmp_path, pairs):
    found = suggestion(capsys, "--model", "embedded", "--data", pairs)
    recipe = parse_recipe(found.recipe)
    assert recipe.preference.objective == "dpo"
    assert "pairs" in chosen(found, "preference.objective").reason
    assert recipe.data.max_length > 128, "the rejected replies are longer than the chosen ones"
    assert recipe.train.micro_batch_tokens >= 2 * recipe.data.max_length
    assert recipe.train.learning_rate < learning_rate(576) / 20
    file = tmp_path / "pairs.toml"
    file.write_text(found.recipe, encoding="utf-8")
    code, text, _ = run(capsys, "plan", file, "--json")
    assert code == ExitCode.DONE
    plan = RunPlan.model_validate_json(text)
    assert plan.fits
    assert plan.memory_bytes == pytest.approx(found.plan.memory_bytes, rel=0.05)
    assert plan.steps == pytest.approx(found.plan.steps, rel=0.2)


@pytest.mark.slow
@pytest.mark.long
def test_the_embedded_model_trains_what_pairs_are_suggested(capsys, tmp_path, pairs):
    assert train_two_steps(tmp_path, suggestion(capsys, "--model", "embedded", "--data", pairs)) == ExitCode.DONE


@pytest.mark.full
@pytest.mark.parametrize("objective", ["dpo", "orpo", "simpo", "sft"])
def test_each_objective_of_pairs_can_be_asked_for_and_trains(capsys, tmp_path, tiny, pairs, objective):
    found = suggestion(capsys, "--model", tiny, "--data", pairs, "--objective", objective)
    recipe = parse_recipe(found.recipe)
    assert recipe.preference.objective == objective
    assert chosen(found, "preference.objective").value == objective
    assert recipe.preference.beta == {"simpo": 2.0}.get(objective, 0.1)
    assert (recipe.preference.rpo_alpha, bool(chosen(found, "preference.rpo_alpha"))) == (
        (1.0, True) if objective == "dpo" else (0.0, False)
    )
    assert train_two_steps(tmp_path, found) == ExitCode.DONE


def test_labeled_replies_get_a_recipe_of_kto_that_evens_them_out_and_trains(capsys, tmp_path, tiny, labels):
    found = suggestion(capsys, "--model", tiny, "--data", labels)
    section = parse_recipe(found.recipe).preference
    assert section.objective == "kto"
    assert 30 / (10 * section.undesirable_weight) == pytest.approx(4 / 3, abs=0.02)
    assert chosen(found, "preference.undesirable_weight")
    assert train_two_steps(tmp_path, found) == ExitCode.DONE


@pytest.mark.full
def test_rates_differ_by_objective(capsys, tiny, pairs):
    rates = {
        objective: parse_recipe(
            suggestion(capsys, "--model", tiny, "--data", pairs, "--objective", objective).recipe
        ).train.learning_rate
        for objective in ("sft", "orpo", "dpo")
    }
    assert rates["dpo"] < rates["orpo"] < rates["sft"]


def test_a_plan_of_comparing_counts_the_reference_and_a_plan_without_does_not(capsys, tiny, pairs):
    for objective, has_one in (("dpo", True), ("orpo", False)):
        plan = suggestion(capsys, "--model", tiny, "--data", pairs, "--objective", objective).plan
        assert any(part.name == "reference" for part in plan.times) is has_one


@pytest.mark.full
def test_pairs_that_are_too_long_for_the_model_are_said_to_be_left_out(capsys, tmp_path, tiny):
    longest = 4 * 1024
    rows = [
        {"prompt": f"Lamp {n}?", "chosen": "Lit.", "rejected": "No. " * (longest if n % 3 == 0 else 4)}
        for n in range(30)
    ]
    found = suggestion(capsys, "--model", tiny, "--data", write_jsonl(tmp_path / "long.jsonl", rows))
    recipe = parse_recipe(found.recipe)
    assert recipe.data.max_length < longest
    (warning,) = [one for one in found.warnings if "left out" in one]
    assert "33%" in warning
    assert found.plan.tokens < 30 * 200, "what is left out is not trained on"


def test_pairs_that_are_all_too_long_do_not_fit(capsys, tmp_path, tiny):
    rows = [{"prompt": f"Lamp {n}?", "chosen": "Lit.", "rejected": "No. " * 2_000} for n in range(20)]
    data = write_jsonl(tmp_path / "long.jsonl", rows)
    code, text, _ = run(capsys, "suggest", "--model", tiny, "--data", data, "--json")
    assert code == ExitCode.DOES_NOT_FIT
    plan = Suggestion.model_validate_json(text).plan
    assert not plan.fits
    assert "pair" in plan.problems[-1]


def test_an_objective_that_the_rows_do_not_allow_or_nobody_knows_is_refused(capsys, tiny, pairs):
    code, _, wrong = run(capsys, "suggest", "--model", tiny, "--data", pairs, "--objective", "kto")
    assert code == ExitCode.DATA
    assert "kto" in wrong
    code, _, wrong = run(capsys, "suggest", "--objective", "ppo")
    assert code == ExitCode.USAGE
    assert all(name in wrong for name in ("ppo", "dpo", "simpo"))


def test_an_objective_without_data_is_in_the_recipe(capsys, tmp_path):
    out = tmp_path / "mine.toml"
    assert run(capsys, "suggest", "--model", "embedded", "--objective", "orpo", "--out", out)[0] == ExitCode.DONE
    recipe = load_recipe(out)
    assert recipe.preference.objective == "orpo"
    assert recipe.train.micro_batch_tokens >= 2 * recipe.data.max_length
