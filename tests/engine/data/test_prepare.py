import json
import re

import numpy as np
import pytest

from burnish_engine.contract.errors import DataError, ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.pipeline import collect
from burnish_engine.data.prepare import prepare
from burnish_engine.data.report import columns
from burnish_engine.data.rows import recognize
from burnish_engine.data.rows.column_readings import find_readings
from burnish_engine.data.tokens.pack import IGNORED, epoch_batches
from burnish_engine.service.data_rows import RowReader


def chat(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def chats(count):
    return [chat(f"Question {n}?", f"Answer {n}. " + "More words. " * (n % 7)) for n in range(count)]


def recipe(*files, seed=0, budget=512, **data):
    data = {"max_length": 256, **data}
    return Recipe(
        data=DataSection(files=[str(file) for file in files], **data),
        train=TrainSection(seed=seed, micro_batch_tokens=budget),
    )


def warnings_of(prepared, *words):
    return [warning for warning in prepared.warnings if all(word in warning for word in words)]


def test_the_columns_of_a_file_are_looked_at_once(write_jsonl, make_tokenizer, monkeypatch):
    looked = []

    def counted(samples):
        looked.append(len(samples))
        return find_readings(samples)

    for module in (collect, recognize, columns):
        monkeypatch.setattr(module, "find_readings", counted)
    rows = recipe(write_jsonl(chats(30)))
    prepare(rows, make_tokenizer())
    assert looked == [30]
    RowReader().columns(rows.data, "", lambda: None)
    assert len(looked) == 2


def test_every_row_is_used_or_counted(write_jsonl, make_tokenizer):
    rows = [
        *chats(20),
        chat("a", None),
        chat("a", ""),
        {"messages": []},
        {"messages": [{"role": "user", "content": "alone"}]},
        {"messages": [{"role": "oracle", "content": "x"}]},
        {"other": 1},
        chat("x" * 5000, "cut away"),
        chat("fine", 7),
    ]
    facts = prepare(recipe(write_jsonl(rows)), make_tokenizer()).facts
    assert facts.rows == 28
    assert facts.train_rows + facts.validation_rows == 20
    assert facts.dropped == {
        "message without content": 1,
        "empty reply": 1,
        "empty conversation": 1,
        "no assistant turn": 1,
        'unknown role "oracle"': 1,
        "no conversation": 1,
        "nothing to learn after truncation to 256 tokens": 1,
        "message content is not text": 1,
    }
    assert [place.row for place in facts.dropped_examples["message without content"]] == [21]
    assert [place.row for place in facts.dropped_examples["nothing to learn after truncation to 256 tokens"]] == [27]
    assert facts.rows == facts.train_rows + facts.validation_rows + sum(facts.dropped.values())


def test_reasons_cannot_flood_the_report(write_jsonl, make_tokenizer):
    rows = [*chats(5), *({"messages": [{"role": f"role{n}", "content": "x"}]} for n in range(500))]
    facts = prepare(recipe(write_jsonl(rows)), make_tokenizer()).facts
    assert len(facts.dropped) <= 41
    assert sum(facts.dropped.values()) == 500
    assert all(len(numbers) <= 50 for numbers in facts.dropped_examples.values())


def test_facts_describe_what_is_trained(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(chats(40))), make_tokenizer())
    facts, used = prepared.facts, [*prepared.train, *prepared.validation]
    assert (facts.format, facts.shape, facts.columns) == ("jsonl", "messages", ["messages"])
    assert facts.tokens == sum(len(document) for document in used)
    assert facts.supervised_tokens == sum(document.supervised_tokens for document in used)
    plan = epoch_batches(prepared.train, 512, True, 0, 0)
    assert facts.supervised_tokens > sum(batch.supervised_tokens for batch in plan) > 0
    assert (facts.micro_batches, facts.fill) == (len(plan), plan.fill)
    lengths = sorted(len(document) for document in used)
    assert facts.lengths.longest == lengths[-1]
    assert facts.lengths.mean == pytest.approx(np.mean(lengths))
    assert facts.lengths.median == pytest.approx(np.median(lengths))
    assert sum(count for _, count in facts.lengths.histogram) == 40
    edge, count = facts.lengths.histogram[0]
    assert count == sum(length <= edge for length in lengths)


def test_example_shows_the_learned_part(write_jsonl, make_tokenizer, backend):
    path = write_jsonl([chat("Hi there", "  Größe 😀\n\nand more"), *chats(1)])
    facts = prepare(recipe(path, validation_share=0.0), make_tokenizer("chatml", backend)).facts
    assert facts.example == [
        ("<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n", False),
        ("  Größe 😀\n\nand more<|im_end|>", True),
        ("\n", False),
    ]


@pytest.mark.full
def test_all_formats_and_shapes_together(tmp_path, write_jsonl, make_tokenizer):
    import pyarrow
    from pyarrow import parquet

    files = [write_jsonl(chats(3), "Daten mit Ö/a b.jsonl")]
    alpaca = tmp_path / "a.json"
    alpaca.write_text(json.dumps([{"instruction": "Add.", "input": "1 2", "output": "3"}]), encoding="utf-8")
    pairs = tmp_path / "b.csv"
    pairs.write_text("Question,Answer\nWhy?,Because.\n", encoding="utf-8")
    sharegpt = tmp_path / "c.parquet"
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    parquet.write_table(pyarrow.table({"conversations": [turns]}), sharegpt)
    text = tmp_path / "d.txt"
    text.write_text("One document.\n\nAnother\none.\n", encoding="utf-8")
    prepared = prepare(recipe(*files, alpaca, pairs, sharegpt, text, validation_share=0.0), make_tokenizer())
    assert prepared.facts.format == "jsonl, json, csv, parquet, txt"
    assert prepared.facts.shape == "messages, alpaca, prompt_completion, sharegpt, text"
    assert [document.row for document in prepared.train] == [1, 2, 3, 1, 2, 1, 1, 3]
    assert prepared.facts.rows == prepared.facts.train_rows == 8


@pytest.mark.full
def test_end_of_sequence_is_learned_when_it_is_the_padding(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer(pad_token="<|im_end|>")
    prepared = prepare(recipe(write_jsonl(chats(10))), tokenizer)
    end = tokenizer.eos_token_id
    assert prepared.end_token_ids == (end,)
    for batch in epoch_batches(prepared.train, 512, True, 0, 0):
        assert (batch.labels == end).sum() == len(batch.rows)
    assert not warnings_of(prepared, "learn to stop")


def test_system_prompt_reaches_the_text(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    prepared = prepare(recipe(write_jsonl(chats(4)), system_prompt="Be brief."), tokenizer)
    assert "<|im_start|>system\nBe brief.<|im_end|>" in tokenizer.decode(prepared.train[0].input_ids)
    assert prepared.validation_conversations[0][0] == {"role": "system", "content": "Be brief."}


def test_learning_everything(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(chats(4)), learn="everything"), make_tokenizer())
    assert all(document.supervised[1:].all() for document in prepared.train)
    labels = epoch_batches(prepared.train, 512, True, 0, 0)[0].labels
    assert (labels == IGNORED).sum() == 3  # each document's last position
    halves = {"segments": [{"text": "asked ", "label": False}, {"text": "replied", "label": True}]}
    prepared = prepare(recipe(write_jsonl([halves] * 4), learn="everything"), make_tokenizer())
    assert all(document.supervised[1:].all() for document in prepared.train)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_plain_text_begins_as_the_tokenizer_begins_texts(write_jsonl, make_tokenizer, adds_bos):
    tokenizer = make_tokenizer("llama3", adds_bos=adds_bos)
    prepared = prepare(recipe(write_jsonl([{"text": f"Row {n} of plain text."} for n in range(4)])), tokenizer)
    assert {document.input_ids[0] == tokenizer.bos_token_id for document in prepared.train} == {adds_bos}


# Splitting


def held_out_rows(prepared):
    return [document.row for document in prepared.validation]


@pytest.mark.full
def test_split_is_deterministic_complete_and_seeded(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl(chats(200)), make_tokenizer()
    first, again = (prepare(recipe(path, validation_share=0.1), tokenizer) for _ in range(2))
    assert len(first.validation) == 20
    assert held_out_rows(first) == held_out_rows(again)
    assert sorted(held_out_rows(first) + [document.row for document in first.train]) == list(range(1, 201))
    assert held_out_rows(prepare(recipe(path, validation_share=0.1, seed=1), tokenizer)) != held_out_rows(first)


@pytest.mark.parametrize(("rows", "share", "expected"), [(2, 0.01, 1), (2, 0.5, 1), (1, 0.5, 0), (50, 0.0, 0)])
def test_split_of_few_rows(write_jsonl, make_tokenizer, rows, share, expected):
    prepared = prepare(recipe(write_jsonl(chats(rows)), validation_share=share), make_tokenizer())
    assert (len(prepared.validation), len(prepared.train)) == (expected, rows - expected)
    assert bool(warnings_of(prepared, "No rows are held out")) == (expected == 0)


def test_held_out_conversations_belong_to_the_held_out_documents(write_jsonl, make_tokenizer):
    rows = chats(30)
    prepared = prepare(recipe(write_jsonl(rows), validation_share=0.2), make_tokenizer())
    assert prepared.validation_conversations == [rows[row - 1]["messages"] for row in held_out_rows(prepared)]


def test_validation_files_are_used_whole_and_count(write_jsonl, make_tokenizer):
    train, held_out = write_jsonl(chats(10)), write_jsonl([*chats(14)[10:], chat("a", "")], "held out.jsonl")
    prepared = prepare(recipe(train, validation_files=[str(held_out)]), make_tokenizer())
    assert (len(prepared.train), len(prepared.validation)) == (10, 4)
    assert (prepared.facts.rows, prepared.facts.dropped) == (15, {"empty reply": 1})
    assert prepared.facts.files == [str(train), str(held_out)]
    assert not warnings_of(prepared, "also among")


def test_rows_in_both_sets_are_warned_about(write_jsonl, make_tokenizer):
    train, held_out = write_jsonl(chats(10)), write_jsonl([*chats(2), chat("new", "row")], "held out.jsonl")
    prepared = prepare(recipe(train, validation_files=[str(held_out)]), make_tokenizer())
    assert warnings_of(prepared, "2 of 3 held-out rows")


# Long rows


def long_and_short():
    return [*chats(8), chat("Long?", "word " * 500), chat("Longer?", "word " * 900)]


def test_long_rows_are_cut_and_counted(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(long_and_short()), validation_share=0.0), make_tokenizer())
    assert prepared.facts.truncated_rows == 2
    assert max(len(document) for document in prepared.train) == 256
    assert [document.row for document in prepared.train if document.truncated] == [9, 10]
    assert prepared.facts.lengths.longest > 900
    assert warnings_of(prepared, "2 rows (20.0%)", "256 tokens")


def test_long_rows_can_be_dropped(write_jsonl, make_tokenizer):
    path = write_jsonl(long_and_short())
    facts = prepare(recipe(path, overlong="drop", validation_share=0.0), make_tokenizer()).facts
    assert facts.dropped == {"longer than 256 tokens": 2}
    assert (facts.truncated_rows, facts.train_rows) == (0, 8)


@pytest.mark.full
def test_only_long_rows_say_which_length_would_do(write_jsonl, make_tokenizer):
    path = write_jsonl([chat("Long?", "word " * (300 + n)) for n in range(40)])
    with pytest.raises(DataError) as caught:
        prepare(recipe(path, overlong="drop"), make_tokenizer())
    message = str(caught.value)
    facts = prepare(recipe(path), make_tokenizer()).facts
    assert "All 40 rows are longer than data.max_length (256 tokens)" in message
    assert f"longest has {facts.lengths.longest} tokens" in message
    assert f"median {facts.lengths.median:.0f}" in message
    enough = int(re.search(r"max_length of (\d+)", message)[1])
    kept = prepare(recipe(path, overlong="drop", max_length=enough, budget=4096), make_tokenizer()).facts
    assert 38 <= kept.train_rows + kept.validation_rows < 40


# Refusals


def refusal(path, tokenizer, **data):
    with pytest.raises(DataError) as caught:
        prepare(recipe(path, **data), tokenizer)
    assert caught.value.exit_code is ExitCode.DATA
    return str(caught.value)


def test_no_files_is_a_mistake_in_the_recipe(make_tokenizer):
    with pytest.raises(UsageError):
        prepare(recipe(), make_tokenizer())


def test_no_usable_row_says_why(write_jsonl, make_tokenizer):
    message = refusal(write_jsonl([chat("a", ""), chat("b", None)]), make_tokenizer())
    assert "None of the 2 rows" in message
    assert "empty reply: 1 row, first 1" in message


def test_nothing_to_learn_is_refused_with_the_length_needed(write_jsonl, make_tokenizer):
    message = refusal(write_jsonl([chat("x " * 2000, "never reached")] * 3), make_tokenizer())
    assert "nothing to learn after truncation" in message
    assert "Raise data.max_length" in message


def test_no_usable_held_out_row_is_refused(write_jsonl, make_tokenizer):
    bad = write_jsonl([chat("a", "")], "bad.jsonl")
    message = refusal(write_jsonl(chats(3)), make_tokenizer(), validation_files=[str(bad)])
    assert "validation files" in message


def test_a_template_that_refuses_every_row_is_quoted(write_jsonl, make_tokenizer):
    path = write_jsonl(chats(3))
    message = refusal(path, make_tokenizer("gemma"), system_prompt="Be brief.")
    assert "System role not supported" in message


@pytest.mark.full
def test_hostile_template_is_a_data_error(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer(source="{{ messages.__class__.__base__.__subclasses__() }}")
    assert "sandbox" in refusal(write_jsonl(chats(3)), tokenizer)


def test_paths_are_named_in_errors(write_jsonl, make_tokenizer):
    path = write_jsonl([{"foo": 1}], "Spalten übrig.jsonl")
    message = refusal(path, make_tokenizer())
    assert "Spalten übrig.jsonl" in message
    assert "foo" in message


# Warnings and repeatability


def test_base_model_without_a_template_is_warned_about(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(chats(4))), make_tokenizer(None))
    assert prepared.template.is_default
    assert warnings_of(prepared, "no chat template")
    assert not warnings_of(prepared, "learn to stop")


def test_template_without_end_of_turn_is_warned_about(write_jsonl, make_tokenizer):
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer = make_tokenizer(source=source)
    prepared = prepare(recipe(write_jsonl(chats(4))), tokenizer)
    assert warnings_of(prepared, "no end-of-turn token", "4 rows (1, 2, 3, 4)", "<|im_end|> was appended")
    last = [document.input_ids[-1] for document in prepared.train]
    assert set(last) == {tokenizer.eos_token_id}
    assert all(document.supervised[-1] for document in prepared.train)


def test_a_line_break_behind_the_end_of_a_turn_is_no_missing_end(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(chats(4)), learn="everything"), make_tokenizer())
    assert prepared.train[0].input_ids[-1] not in prepared.end_token_ids
    assert not warnings_of(prepared, "learn to stop")


def test_replies_that_are_all_cut_are_warned_about(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl([chat("a", "word " * 900)] * 3)), make_tokenizer())
    assert warnings_of(prepared, "learn to stop")


def test_control_tokens_in_the_data_are_warned_about(write_jsonl, make_tokenizer):
    rows = [*chats(3), chat("What is <|im_start|>?", "A token.")]
    assert warnings_of(prepare(recipe(write_jsonl(rows)), make_tokenizer()), "One row", "<|im_start|>")
    assert not warnings_of(prepare(recipe(write_jsonl(chats(3))), make_tokenizer()), "control token")


def test_dates_in_templates_are_fixed_and_warned_about(write_jsonl, make_tokenizer):
    source = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    prepared = prepare(recipe(write_jsonl(chats(3))), make_tokenizer(source=source))
    assert warnings_of(prepared, "today's date", "26 Jul 2024")


def test_warnings_are_also_facts(write_jsonl, make_tokenizer):
    prepared = prepare(recipe(write_jsonl(chats(1))), make_tokenizer())
    assert prepared.warnings
    assert prepared.facts.warnings == prepared.warnings


@pytest.mark.full
def test_hash_tells_training_data_apart(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()

    def digest(rows, **data):
        return prepare(recipe(write_jsonl(rows), **data), tokenizer).dataset_hash

    base = digest(chats(10))
    assert base == digest(chats(10))
    assert base != digest([*chats(9), chat("other", "row")])
    assert base != digest(chats(10), learn="everything")
    assert base != digest(chats(10)[::-1])
    assert base != digest(chats(10), validation_share=0.3)
    held_out = [write_jsonl([chat("held", reply)], f"{reply}.jsonl") for reply in ("out", "back")]
    assert len({digest(chats(10), validation_files=[str(file)]) for file in held_out}) == 2


@pytest.mark.full
def test_progress_is_told(write_jsonl, make_tokenizer):
    told = []
    path = write_jsonl(chats(1100))
    prepare(recipe(path), make_tokenizer(), progress=lambda what, done, total: told.append((what, done, total)))
    assert told[0] == (f"reading {path.name}", 0, 0)
    assert told[-1] == (f"tokenizing {path.name}", 1100, 1100)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
