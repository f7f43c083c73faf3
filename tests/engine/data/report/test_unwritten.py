"""Rows that the chat template does not write whole: counted with their rows and a key, and left out or respelled."""

import pytest
from engine.data.report.looked_at import chat, finding, numbers, prepared, prose

from burnish_engine.contract.facts.data_report import DatasetReport
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.prepare import inspect_dataset
from burnish_engine.data.templates.written import EARLIER_THOUGHTS, LAST_THOUGHTS
from burnish_engine.train.guard.batch_checks import check_rendering

CUTS_THOUGHTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content.split('</think>')[-1] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def thoughtful(number):
    row = chat(f"Question {number}?", prose(number, 12))
    row["messages"][1]["reasoning_content"] = prose(number + 100, 12)
    return row


@pytest.fixture
def path(write_jsonl):
    return write_jsonl([*(chat(f"Question {n}?", prose(n, 12)) for n in range(6)), thoughtful(7), thoughtful(8)])


@pytest.fixture
def tokenizer(make_tokenizer):
    return make_tokenizer(source=CUTS_THOUGHTS)


def settings(found):
    return [(action.key, action.value) for action in found.actions]


def test_the_finding_names_count_rows_and_keys(path, tokenizer):
    found = finding(prepared(path, tokenizer).facts, "unwritten")
    assert (found.rows, numbers(found.first)) == (2, [7, 8])
    assert LAST_THOUGHTS in found.says
    assert settings(found) == [("data.unwritten", "respell"), ("data.unwritten", "drop")]


def test_such_rows_are_left_out_where_the_recipe_says_so(path, tokenizer):
    facts = prepared(path, tokenizer, unwritten="drop").facts
    assert (facts.train_rows, facts.dropped) == (6, {LAST_THOUGHTS: 2})
    assert finding(facts, "unwritten") is None


def test_such_rows_are_respelled_where_the_recipe_says_so(path, tokenizer):
    result = prepared(path, tokenizer, unwritten="respell")
    assert finding(result.facts, "unwritten") is None
    assert result.facts.train_rows == 8
    assert f"<think>\n{prose(107, 12)}\n</think>\n\n" in tokenizer.decode(result.train[6].input_ids)


def test_the_last_reply_alone_is_offered_where_the_template_cuts_thoughts_of_earlier_ones(write_jsonl, make_tokenizer):
    turns = [*thoughtful(1)["messages"], *thoughtful(2)["messages"]]
    tokenizer = make_tokenizer("qwen3")
    path = write_jsonl([{"messages": turns}])
    found = finding(prepared(path, tokenizer).facts, "unwritten")
    assert EARLIER_THOUGHTS in found.says
    assert ("data.learn", "last") in settings(found)
    assert finding(prepared(path, tokenizer, learn="last").facts, "unwritten") is None


WITHOUT_IDS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name + (call.function.arguments | tojson) }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def call(name):
    return {"id": name, "type": "function", "function": {"name": "look", "arguments": {}}}


def test_a_result_that_answers_no_call_is_found(write_jsonl, make_tokenizer):
    rows = []
    for answered in ("a1", "a2"):
        turns = [
            {"role": "user", "content": "How high?"},
            {"role": "assistant", "content": "", "tool_calls": [call("a1")]},
            {"role": "tool", "content": "40", "tool_call_id": answered},
            {"role": "assistant", "content": "It is 40."},
        ]
        rows.append({"messages": turns})
    rows.append({"messages": [turns[0], {"role": "tool", "content": "40"}, turns[-1]]})
    found = finding(prepared(write_jsonl(rows), make_tokenizer(source=WITHOUT_IDS)).facts, "unwritten")
    assert (found.rows, numbers(found.first)) == (2, [2, 3])


@pytest.mark.parametrize(
    ("ids", "order"), [("ba", ["one", "two"]), ("ab", ["two", "one"]), ([None] * 2, ["two", "one"])], ids=str
)
def test_results_stand_in_the_order_of_their_calls(write_jsonl, make_tokenizer, ids, order):
    results = [
        {"role": "tool", "content": text, "tool_call_id": one} for text, one in zip(("two", "one"), ids, strict=True)
    ]
    calls = {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]}
    turns = [{"role": "user", "content": "How high?"}, calls, *results, {"role": "assistant", "content": "So high."}]
    tokenizer = make_tokenizer(source=WITHOUT_IDS)
    text = tokenizer.decode(prepared(write_jsonl([{"messages": turns}]), tokenizer).train[0].input_ids)
    assert text.index(order[0]) < text.index(order[1])


def test_pairs_that_become_equal_are_left_out_and_do_not_contradict(write_jsonl, tokenizer):
    same = [{"role": "assistant", "content": "Red.", "reasoning_content": thought} for thought in ("Hm.", "Ah.")]
    other = [{"role": "assistant", "content": text} for text in ("Red.", "Blue.")]
    rows = [
        {"prompt": [{"role": "user", "content": f"Color {n}?"}], "chosen": [chosen], "rejected": [rejected]}
        for n, (chosen, rejected) in enumerate([same, same[::-1], other, other, other])
    ]
    recipe = Recipe(
        data=DataSection(files=[str(write_jsonl(rows))], max_length=200, validation_share=0.0),
        preference=PreferenceSection(objective="dpo"),
    )
    facts = inspect_dataset(recipe, tokenizer).facts
    assert facts.train_rows == 3
    assert sum(facts.dropped.values()) == 2
    found = finding(facts, "same_replies")
    assert (found.rows, numbers(found.first)) == (2, [1, 2])
    assert finding(facts, "contradictions") is None


def test_the_guard_says_it_without_ending_the_run(path, tokenizer):
    facts = prepared(path, tokenizer).facts
    (said,) = check_rendering(facts.report)
    assert (said.check, said.stops) == ("unwritten", False)
    assert LAST_THOUGHTS in said.sentence
    assert 'data.unwritten = "drop"' in said.remedy
    assert not list(check_rendering(DatasetReport.model_validate({**facts.report.model_dump(), "findings": []})))
