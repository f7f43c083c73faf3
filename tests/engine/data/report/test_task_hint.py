"""How many held-out rows a score finds: by its metric, by the length of prompts and by what the template takes."""

from types import SimpleNamespace

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.report.task_hint import task_fit

CHATS = [
    [{"role": "user", "content": asked}, {"role": "assistant", "content": wanted}]
    for asked, wanted in (("a", "1"), ("b c d e", "2"), ("f", "three"), ("refused", "4"), ("g", "5 5 5 5"))
]


def render(messages, *, add_generation_prompt):
    assert add_generation_prompt
    if messages[-1]["content"] == "refused":
        raise RowError("refused")
    return messages[-1]["content"]


def tokens(text, *, add_special_tokens):
    assert not add_special_tokens
    return {"input_ids": text.split()}


def fit(chats=CHATS, **task):
    recipe = Recipe.model_validate({"task": task, "data": {"max_length": 16}})
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_length": 3})})
    return task_fit(recipe, chats, SimpleNamespace(formed=SimpleNamespace(render=render)), tokens)


def test_rows_are_counted_as_training_chooses_them():
    found = fit(metric="number", max_tokens=4)
    assert (found.rows, found.usable_rows, found.long_replies) == (2, 2, 1)
    assert sum(found.left_out.values()) == 3
    assert found.section.metric == "number"


def test_a_metric_may_find_none_where_another_would():
    found = fit(CHATS[2:3], metric="number")
    assert (found.rows, found.usable_rows) == (0, 1)
    assert (fit([], metric="json").rows, fit([], metric="json").usable_rows) == (0, 0)


def test_without_a_score_it_is_known_whether_there_could_be_one():
    assert (fit().rows, fit().usable_rows) == (0, 1)
    assert fit(CHATS[1:2]).usable_rows == 0
