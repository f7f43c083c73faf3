"""What an export takes from a run: its own rows, which of their tokens count, and how its weights were held."""

import pytest

from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.data.prepare import prepare
from burnish_engine.export.run_rows import ExportRows, export_rows, reference_options
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.held_out import save_held_out
from burnish_engine.runs.store import create_run

from support.runs.tiny_runs import tiny_recipe


@pytest.fixture(scope="module")
def prepared_run(tmp_path_factory):
    """A run with its held-out rows, and its rows as training sees them."""
    folder = tmp_path_factory.mktemp("rows")
    recipe = tiny_recipe(folder, rows=12)
    source = open_model(recipe.model.path)
    data = prepare(recipe, load_tokenizer(source))
    paths = create_run(recipe, folder / "run")
    save_held_out(paths, [row.input_ids.tolist() for row in data.validation], data.validation_conversations)
    return paths, recipe, source, data


@pytest.mark.full
def test_rows_and_their_supervised_tokens_are_those_of_training(prepared_run):
    paths, recipe, source, data = prepared_run
    rows = export_rows(paths, recipe, source)
    assert rows.training == [row.input_ids.tolist() for row in data.train]
    assert rows.held_out == [row.input_ids.tolist() for row in data.validation]
    assert rows.supervised == [row.supervised.tolist() for row in data.validation]
    assert 0 < sum(map(sum, rows.supervised)) < sum(map(len, rows.supervised))
    assert [chat[-1]["role"] for chat in rows.chats] == ["user"] * len(data.validation)


def test_without_the_data_all_tokens_count_and_the_reason_is_told(prepared_run):
    paths, recipe, source, _ = prepared_run
    gone = recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": ["/no/such/file.jsonl"]})})
    rows = export_rows(paths, gone, source)
    assert (rows.supervised, rows.training) == ([], [])
    assert "/no/such/file.jsonl" in rows.note
    assert len(rows.held_out) == 8


@pytest.mark.parametrize("onto", ["base", "dequantized"])
def test_the_options_say_how_the_weights_were_held(prepared_run, onto):
    paths, recipe, source, _ = prepared_run
    rows = export_rows(paths, recipe, source)
    export = recipe.export.model_copy(update={"importance_tokens": 777})
    plain = reference_options(paths, recipe.model_copy(update={"export": export}), source, rows, importance=True)
    assert plain.tokens == 777
    assert (plain.in_4_bits, plain.onto_rounded, plain.rounded) == (frozenset(), False, frozenset())
    assert plain.training == rows.training
    assert plain.supervised == rows.supervised
    changes = {
        "model": recipe.model.model_copy(update={"quantize": "nf4"}),
        "export": recipe.export.model_copy(update={"merge_onto": onto}),
    }
    held = reference_options(paths, recipe.model_copy(update=changes), source, rows)
    assert "model.layers.0.mlp.up_proj.weight" in held.in_4_bits
    assert held.rounded == (held.in_4_bits if onto == "dequantized" else frozenset())
    assert not held.training


def test_the_loss_that_training_reported_goes_along(prepared_run, tmp_path):
    _, recipe, source, _ = prepared_run
    paths = create_run(recipe, tmp_path / "run")
    assert reference_options(paths, recipe, source, ExportRows([], [])).reported is None
    evaluated = EvaluationDone(seq=0, step=4, loss=1.5, tokens=77, seconds=1.0)
    paths.events.write_text(f"{evaluated.model_dump_json()}\n", encoding="utf-8")
    assert reference_options(paths, recipe, source, ExportRows([], [])).reported == (1.5, 77)


@pytest.mark.parametrize("objective", ["dpo", "kto"])
@pytest.mark.parametrize("accuracy", [None, 0.0, 0.5])
def test_a_loss_of_preferences_does_not_go_along(prepared_run, tmp_path, objective, accuracy):
    _, recipe, source, _ = prepared_run
    paths = create_run(recipe, tmp_path / "run")
    evaluated = EvaluationDone(seq=0, step=4, loss=0.7, tokens=77, seconds=1.0, accuracy=accuracy)
    paths.events.write_text(f"{evaluated.model_dump_json()}\n", encoding="utf-8")
    preference = recipe.preference.model_copy(update={"objective": objective})
    learned = recipe.model_copy(update={"preference": preference})
    assert reference_options(paths, learned, source, ExportRows([], [])).reported is None
