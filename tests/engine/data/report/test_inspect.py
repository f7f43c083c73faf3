import io
import json

import pytest
import typer
from typer.testing import CliRunner

from burnish_engine.cli.prepare.inspect import inspect
from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts


@pytest.fixture
def run(make_tokenizer, monkeypatch):
    """Runs `inspect` with a small tokenizer in place of a model's."""
    from burnish_engine.models.checkpoint import source, tokenizer

    monkeypatch.setattr(source, "open_model", lambda path: path)
    monkeypatch.setattr(tokenizer, "load_tokenizer", lambda _: make_tokenizer())
    app = typer.Typer()
    app.command()(inspect)

    def call(*arguments):
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def row(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


ROWS = [row(f"Question {n}?", f"Answer {n}, " + "word " * (n * 4)) for n in range(30)]


@pytest.mark.full
def test_json_is_the_facts_and_nothing_else(run, write_jsonl):
    out = run(write_jsonl(ROWS), "--json")
    facts = DatasetFacts.model_validate_json(out)
    assert facts.rows == 30
    assert json.loads(out)["shape"] == "messages"


def test_page_says_what_matters(run, write_jsonl):
    path = write_jsonl([*ROWS, row("a", ""), row("b", "")])
    out = run(path, "--max-length", 64, "--micro-batch-tokens", 256)
    for part in (
        path.name,
        "jsonl, shape messages",
        "32: 30 used, 2 dropped",
        "empty reply",
        "first: row 31, 32",
        "max_length 64",
        "longest",
        "of 256 tokens filled",
        "Warnings",
    ):
        assert part in out


@pytest.mark.full
def test_learned_text_is_marked_without_color(run, write_jsonl):
    out = run(write_jsonl([row("Hi", "Hello"), row("Hi", "Ho")]), "--validation", write_jsonl(ROWS, "b.jsonl"))
    marks = ("⟦", "⟧") if "⟦" in out else ("[[", "]]")
    assert f"{marks[0]}Hello<|im_end|>{marks[1]}" in out


def test_options_reach_the_data(run, write_jsonl):
    path, held_out = write_jsonl(ROWS), write_jsonl(ROWS[:5], "held out.jsonl")
    out = run(
        path, "--json", "--max-length", 48, "--overlong", "drop", "--learn", "everything", "--shape", "messages",
        "--validation", held_out, "--validation", held_out,
    )  # fmt: skip
    facts = DatasetFacts.model_validate_json(out)
    assert facts.rows == 40
    assert facts.truncated_rows == 0
    assert facts.dropped["longer than 48 tokens"] > 0
    assert facts.supervised_tokens == facts.tokens - facts.train_rows - facts.validation_rows


@pytest.mark.full
def test_budget_grows_with_the_longest_row(run, write_jsonl):
    assert "of 4,096 tokens filled" in run(write_jsonl(ROWS), "--max-length", 4096)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shape", "poem"], "--shape poem"),
        (["--max-length", "3"], "--max-length 3"),
        (["--max-length", "512", "--micro-batch-tokens", "256"], "data.max_length (512)"),
    ],
)
def test_impossible_options_are_usage_errors(run, write_jsonl, options, said):
    with pytest.raises(UsageError) as caught:
        run(write_jsonl(ROWS), *options)
    assert said in str(caught.value)


def test_data_errors_go_through(run, tmp_path):
    with pytest.raises(DataError):
        run(tmp_path / "missing.jsonl")


def test_data_cannot_steer_the_terminal_or_the_markup(run, write_jsonl):
    out = run(write_jsonl([row("[bold]\x1b[31mred[/bold]", "\x07 [/] \x9b")]), "--learn", "everything")
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]" in out


def test_colored_terminals_see_the_learned_part_underlined(make_tokenizer, write_jsonl):
    from burnish_engine.cli.prepare.inspect import show_facts
    from burnish_engine.cli.terminal import Terminal
    from burnish_engine.contract.recipe.recipe import Recipe
    from burnish_engine.contract.recipe.recipe_data import DataSection
    from burnish_engine.data.prepare import prepare

    path = write_jsonl([row("Hi", "Hello"), row("Hi", "Ho")])
    recipe = Recipe(data=DataSection(files=[str(path)], validation_share=0.0))
    facts = prepare(recipe, make_tokenizer()).facts
    stream = io.StringIO()
    show_facts(facts, recipe, Terminal(file=stream, force_terminal=True, color_system="standard", no_color=False))
    before, _, after = stream.getvalue().partition("Hello<|im_end|>")
    assert after
    assert ";4" in before[-12:]  # SGR 4: underlined


@pytest.mark.full
def test_pairs_are_looked_at_as_the_objective_learns_them(run, write_jsonl):
    path = write_jsonl(
        [{"prompt": f"Lamp {n}?", "chosen": "Yes.", "rejected": f"No, lamp {n} is off. " * 6} for n in range(25)]
    )
    found = {
        objective: DatasetFacts.model_validate_json(run(path, "--json", "--objective", objective, "--max-length", 4096))
        for objective in ("sft", "dpo")
    }
    assert not any("shorter" in warning for warning in found["sft"].warnings)
    assert any("shorter" in warning for warning in found["dpo"].warnings)
    assert found["dpo"].supervised_tokens > 2 * found["sft"].supervised_tokens  # both replies
