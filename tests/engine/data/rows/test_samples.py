"""A small sample of every shape: recognized without help, or asked about."""

import json
from pathlib import Path

import pytest

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.prepare import inspect_dataset, prepare
from burnish_engine.data.rows.column_readings import SURE, find_readings
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.row_readers import row_reader

from support.data.tables import read_rows

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SAMPLES = Path(__file__).parent / "samples"

SHAPES = {
    "alpaca-history.jsonl": "alpaca",
    "alpaca-input.jsonl": "alpaca",
    "alpaca.jsonl": "alpaca",
    "kto.jsonl": "kto",
    "messages-function-call.jsonl": "messages",
    "messages-openai-parts.jsonl": "messages",
    "messages-reasoning.jsonl": "messages",
    "messages-thinking.jsonl": "messages",
    "messages-tools.jsonl": "messages",
    "messages-weights.jsonl": "messages",
    "messages.jsonl": "messages",
    "pairs-of-texts.jsonl": "messages",
    "preference-chats.jsonl": "preference",
    "preference-hh.jsonl": "preference",
    "preference-openai.jsonl": "preference",
    "preference.jsonl": "preference",
    "problem-solution.jsonl": "prompt_completion",
    "prompt-completion-chats.jsonl": "prompt_completion",
    "prompt-completion.jsonl": "prompt_completion",
    "question-answer-reasoning.jsonl": "prompt_completion",
    "question-answer.csv": "prompt_completion",
    "sharegpt-roles.jsonl": "sharegpt",
    "sharegpt-speakers.jsonl": "sharegpt",
    "sharegpt-tools.jsonl": "sharegpt",
    "sharegpt.jsonl": "sharegpt",
    "source-target.tsv": "prompt_completion",
    "text.jsonl": "text",
    "text.md": "text",
    "text.txt": "text",
}
AMBIGUOUS = {
    "ambiguous-two-prompts.jsonl": ["prompt=prompt", "completion=response"],
    "ambiguous-unknown-names.jsonl": ["prompt=left", "completion=right"],
    "ambiguous-labels.jsonl": ["prompt=prompt", "completion=completion", "label=label"],
    "ambiguous-two-chats.jsonl": ["conversation=messages"],
}


def rows(name):
    return [row.values for row in read_rows(SAMPLES / name)]


def conversations(name, **options):
    layout = recognize(rows(name), name, **options)
    return [row_reader(layout).read(values, 1, name) for values in rows(name)]


def test_every_sample_is_named_here():
    assert sorted(path.name for path in SAMPLES.iterdir()) == sorted([*SHAPES, *AMBIGUOUS])


@pytest.mark.parametrize(("name", "shape"), SHAPES.items())
def test_every_shape_is_recognized_without_help(name, shape):
    found = find_readings(rows(name))
    assert recognize(rows(name), name).shape == shape
    assert found[0].confidence >= SURE
    assert found[0].layout.shape == shape


@pytest.mark.parametrize(("name", "columns"), AMBIGUOUS.items())
def test_ambiguous_columns_ask_and_a_setting_answers(name, columns, make_tokenizer):
    with pytest.raises(DataError) as caught:
        recognize(rows(name), name)
    assert "Say which in the recipe" in caught.value.remedy
    assert json.dumps(columns)[1:-1].split(",")[0] in caught.value.remedy
    settings = DataSection(files=[str(SAMPLES / name)], columns=columns, validation_share=0.0)
    if name == "ambiguous-labels.jsonl":
        settings = settings.model_copy(update={"shape": "kto"})
    assert prepare(Recipe(data=settings), make_tokenizer()).train


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape not in ("preference", "kto")])
def test_every_sample_can_be_trained_on(name, make_tokenizer):
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    data = DataSection(files=[str(SAMPLES / name)], validation_share=0.0)
    facts = prepare(Recipe(data=data), make_tokenizer(source=source)).facts
    assert facts.train_rows == facts.rows > 0
    assert facts.report.readings[0].shape == SHAPES[name]
    assert facts.report.readings[0].example


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape in ("preference", "kto")])
def test_preferences_are_shown_and_not_trained_on_unasked(name, make_tokenizer):
    data = DataSection(files=[str(SAMPLES / name)], validation_share=0.0)
    facts = inspect_dataset(Recipe(data=data), make_tokenizer()).facts
    assert facts.shape == SHAPES[name]
    assert any("preferences" in warning for warning in facts.warnings)
    with pytest.raises(DataError, match=f"shape {SHAPES[name]}"):
        prepare(Recipe(data=data), make_tokenizer())
    asked = prepare(Recipe(data=data.model_copy(update={"shape": SHAPES[name]})), make_tokenizer()).facts
    assert asked.train_rows == 1
    assert asked.rows == 1 + sum(asked.dropped.values())


def test_tools_calls_and_answers_are_read_from_every_dialect():
    for name in ("messages-tools.jsonl", "messages-function-call.jsonl", "sharegpt-tools.jsonl"):
        [chat] = conversations(name)
        messages = [message for message in chat.messages if message.role != "system"]
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
        [call] = messages[1].extras["tool_calls"]
        assert call["function"] == {"name": "torque", "arguments": {"bolt": "M8"}}
        assert chat.tools[0]["function"]["name"] == "torque"


def test_thoughts_are_read_from_turns_and_from_columns():
    for name in ("messages-reasoning.jsonl", "question-answer-reasoning.jsonl"):
        [chat] = conversations(name)
        assert chat.messages[-1].extras["reasoning_content"]


def test_every_role_name_of_sharegpt_is_known():
    [chat] = conversations("sharegpt-roles.jsonl")
    assert [message.role for message in chat.messages] == ["system", *["user", "assistant"] * 4]


def test_history_comes_before_the_instruction():
    [chat] = conversations("alpaca-history.jsonl")
    assert [message.role for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_weight_zero_is_not_learned():
    [chat] = conversations("messages-weights.jsonl")
    assert [message.supervised for message in chat.messages if message.role == "assistant"] == [False, True]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (["prompt=nowhere"], DataError),
        (["prompt=left"], UsageError),
    ],
)
def test_columns_that_cannot_be(columns, error):
    with pytest.raises(error):
        recognize(rows("ambiguous-unknown-names.jsonl"), "file", columns=columns)


@pytest.mark.parametrize(
    ("values", "columns", "shape"),
    [
        ({"frage": "Why so?", "completion": "Because."}, ["prompt=frage"], "prompt_completion"),
        ({"messages": CHAT, "thumb": True}, ["label=thumb"], "kto"),
        ({"talk": CHAT[:1], "good": CHAT[1], "bad": CHAT[1]}, ["conversation=talk", "chosen=good", "rejected=bad"],
         "preference"),
        ({"talk": CHAT, "label": True}, ["conversation=talk", "label=label"], "kto"),
        ({"question": "Which?", "choices": ["a", "b"], "answer": "a"}, ["prompt=question", "completion=answer"],
         "prompt_completion"),
        ({"input_ids": [1], "labels": [1], "note": "Some text."}, ["text=note"], "text"),
    ],
)  # fmt: skip
def test_columns_said_by_hand_count_and_the_others_are_recognized(values, columns, shape):
    layout = recognize([values], "file", columns=columns)
    assert layout.shape == shape
    assert layout.from_recipe
    assert dict(pair.split("=") for pair in columns).items() <= layout.columns.items()
    assert row_reader(layout).read(values, 1, "file")
