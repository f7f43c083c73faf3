"""Rows for the close look at a data set, and what it finds in them."""

import numpy as np

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.prepare import prepare


def chat(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dogs",
    "while",
    "seven",
    "wizards",
    "brew",
    "strong",
    "coffee",
    "near",
    "old",
    "mills",
]


def prose(seed, count=40):
    random = np.random.RandomState(seed)
    return " ".join(random.choice(WORDS) + str(random.randint(50)) for _ in range(count))


def rows():
    return [chat(f"Question {n}?", prose(n)) for n in range(40)]


def prepared(path, tokenizer, **data):
    settings = {"max_length": 512, "validation_share": 0.0, **data}
    data, train = DataSection(files=[str(path)], **settings), TrainSection(micro_batch_tokens=65536)
    return prepare(Recipe(data=data, train=train), tokenizer)


def numbers(places):
    return [place.row for place in places]


def finding(facts, kind):
    found = [item for item in facts.report.findings if item.kind == kind]
    assert len(found) <= 1
    return found[0] if found else None


def applied(path, tokenizer, facts, kind, index=0, **data):
    """Does what a finding offers, as the recipe would."""
    action = finding(facts, kind).actions[index]
    section, key = action.key.split(".")
    assert section == "data"
    return prepared(path, tokenizer, **data, **{key: action.value}).facts
