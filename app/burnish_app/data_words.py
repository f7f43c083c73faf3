"""What is found in a dataset, in plain words: shapes, meanings, findings, templates and changes. Pure, no Qt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from burnish_app.words import as_sentence, percent, plural
from burnish_engine.contract.data_report import CutLine, RowPlace, Setting, TemplateFacts
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe_data import DataSection

SHAPES = {
    "messages": "conversations",
    "sharegpt": "conversations (ShareGPT)",
    "alpaca": "instructions",
    "prompt_completion": "prompt and completion",
    "preference": "pairs of a better and a worse reply",
    "kto": "replies labeled good or bad",
    "segments": "text of which parts are learned",
    "text": "plain text",
}
MEANINGS = {
    "conversation": "The conversation",
    "instruction": "What is asked",
    "input": "Further input",
    "context": "What it is asked about",
    "output": "What is replied",
    "history": "Earlier turns",
    "prompt": "What is asked",
    "completion": "What is replied",
    "text": "The text",
    "segments": "The parts of the text",
    "chosen": "The better reply",
    "rejected": "The worse reply",
    "label": "Good or bad",
    "system": "System message",
    "tools": "Tools",
    "reasoning": "Thoughts before the reply",
}
_MAY_HAVE = {
    "alpaca": ("input", "history", "system", "tools", "reasoning"),
    "prompt_completion": ("context", "history", "system", "tools", "reasoning"),
    "kto": ("input", "context", "history", "system", "tools", "reasoning"),
    "messages": ("system", "tools"),
    "sharegpt": ("system", "tools"),
    "preference": ("conversation", "prompt", "instruction", "input", "context", "history", "system", "tools"),
}
"""Which further meanings make sense in a shape."""
TEMPLATES = ("auto", "chatml", "llama3", "gemma", "mistral", "zephyr", "phi3", "vicuna", "alpaca")
"""Those with a name; any other value is a file."""
SURE, FAIRLY_SURE = 0.9, 0.7
_BY_LINE = {"jsonl", "csv", "txt", "markdown"}
_MOST_ROWS_NAMED = 8

ACTIONS = {
    ("duplicates", "drop"): "Leave out copies",
    ("duplicates", "drop_near"): "Leave out near copies",
    ("leaks", "drop"): "Take them out of training",
    ("degenerate", "drop"): "Leave them out",
    ("secrets", "drop"): "Leave them out",
    ("addresses", "drop"): "Leave them out",
    ("damaged", "drop"): "Leave them out",
    ("control_tokens", "drop"): "Leave them out",
    ("tools", "drop"): "Leave them out",
    ("placeholders", "drop"): "Leave them out",
    ("overlong", "drop"): "Leave them out",
    ("overlong", "split"): "Split them",
    ("overlong", "truncate"): "Cut them",
    ("broken_rows", "drop"): "Go on without such rows",
    ("encoding", "cp1252"): "Read as Windows-1252",
}
"""What a button says that sets a field of the recipe's data section."""
DONE = {
    ("duplicates", "drop"): "Copies of earlier rows are left out.",
    ("duplicates", "drop_near"): "Copies and near copies of earlier rows are left out.",
    ("leaks", "drop"): "Training rows that are held out too are left out.",
    ("degenerate", "drop"): "Rows whose reply repeats itself or says nothing are left out.",
    ("secrets", "drop"): "Rows with what looks like a key or a password are left out.",
    ("addresses", "drop"): "Rows with an e-mail address are left out.",
    ("damaged", "drop"): "Rows whose letters were lost or garbled are left out.",
    ("control_tokens", "drop"): "Rows that spell out a control token are left out.",
    ("tools", "drop"): "Rows with tools that the template does not write are left out.",
    ("placeholders", "drop"): "Rows that learn a placeholder are left out.",
    ("overlong", "drop"): "Rows that are too long are left out.",
    ("overlong", "split"): "Rows that are too long are split.",
    ("overlong", "truncate"): "Rows that are too long are cut.",
    ("broken_rows", "drop"): "Rows that cannot be read are left out.",
}
"""What is said where such a field is set."""
CLEANING = (
    "duplicates", "leaks", "degenerate", "secrets", "addresses", "damaged", "control_tokens", "tools", "placeholders",
    "overlong", "broken_rows", "encoding",
)  # fmt: skip
_SETTING = re.compile(r'data\.(\w+) = "([^"]+)"')


class Change(NamedTuple):
    """A field of the data section that was set to something else than its default."""

    field: str
    says: str
    usual: Any


class Check(NamedTuple):
    """One thing a chat template does or does not."""

    says: str
    good: bool
    hint: str


def shape_words(shape: str) -> str:
    """A shape, or several joined by commas."""
    return ", ".join(SHAPES.get(one, one) for one in shape.split(", "))


def meanings_of(shape: str, needs: Sequence[str]) -> list[str]:
    """The meanings to offer for a shape: those it needs first.

    Args:
        shape: Its name.
        needs: Meanings that some column must have.
    """
    return [*needs, *(meaning for meaning in _MAY_HAVE.get(shape, ()) if meaning not in needs)]


def confidence_words(confidence: float) -> str:
    """How sure a reading is."""
    return "sure" if confidence >= SURE else "fairly sure" if confidence >= FAIRLY_SURE else "a guess"


def pairs_of(columns: Sequence[str]) -> dict[str, str]:
    """Meaning to column, of the recipe's "meaning=column" pairs."""
    split = (pair.partition("=") for pair in columns)
    return {meaning.strip(): name.strip() for meaning, _, name in split}


def rows_in_words(places: Sequence[RowPlace], count: int, facts: DatasetFacts) -> str:
    """Which rows something concerns: lines or rows of which file; empty where they are not known.

    Args:
        places: The first of them, in order.
        count: How many there are.
        facts: Of the dataset they are in.
    """
    shown = places[:_MOST_ROWS_NAMED]
    if not shown:
        return ""
    kind = "line" if set(facts.format.split(", ")) <= _BY_LINE else "row"
    more = " ..." if count > len(shown) else ""
    by_file = [
        (Path(file).name, ", ".join(f"{place.row:,}" for place in rows))
        for file, rows in groupby(shown, key=lambda place: place.file)
    ]
    if len(by_file) == 1:
        name, numbers = by_file[0]
        where = f"{numbers}{more} of {name}"
    else:
        where = "; ".join(f"{numbers} of {name}" for name, numbers in by_file) + more
    return f"{kind.capitalize()}{'s' if len(shown) > 1 else ''} {where}"


def action_words(setting: Setting) -> str:
    """What a button says that takes an action."""
    field = setting.key.rpartition(".")[2]
    return ACTIONS.get((field, str(setting.value)), f"{setting.key} = {setting.value}")


def named_settings(words: str) -> list[Setting]:
    """Settings of the data section that a message names, such as `data.broken_rows = "drop"`, once each."""
    found = dict.fromkeys(_SETTING.findall(words))
    return [Setting(key=f"data.{field}", value=value, says="") for field, value in found if (field, value) in ACTIONS]


def changes(data: DataSection) -> list[Change]:
    """What is done to rows because the recipe says so."""
    usual = DataSection()
    found = []
    for field in CLEANING:
        value = getattr(data, field)
        if value != getattr(usual, field):
            says = DONE.get((field, value)) or f"The files are read as {value}."
            found.append(Change(field, says, getattr(usual, field)))
    return found


def further_warnings(facts: DatasetFacts) -> list[str]:
    """The warnings that no finding says already."""
    report = facts.report
    if report is None:
        return facts.warnings
    starts = tuple(finding.says.removesuffix(".") for finding in report.findings)
    worded = tuple(f"{action.key} =" for finding in report.findings for action in finding.actions)
    return [
        warning
        for warning in facts.warnings
        if not (starts and warning.startswith(starts)) and not any(key in warning for key in worded)
    ]


def template_checks(facts: TemplateFacts) -> list[Check]:
    """What a template does, good news and bad."""
    end = facts.turn_end or "nothing"
    return [
        Check(
            "Takes a system message" if facts.takes_system else "Takes no system message",
            facts.takes_system,
            "Without it, system messages in rows are refused or lost.",
        ),
        Check(
            "Allows the same role twice in a row" if facts.takes_two_users else "Roles must alternate",
            facts.takes_two_users,
            "Where roles must alternate, rows with two turns of one role in a row cannot be used.",
        ),
        Check(
            "Writes what stands before a reply" if facts.has_prompt else "Writes nothing before a reply",
            facts.has_prompt,
            "The generation prompt: the model is asked with it, so it should be there.",
        ),
        Check(
            "Replies begin as they are asked for" if facts.prompt_fits else "Replies begin otherwise than asked for",
            facts.prompt_fits,
            "Where they do not, the model is asked otherwise than it was trained.",
        ),
        Check(
            f"Replies end with {end}" + (", the end-of-sequence token" if facts.ends_with_eos else ""),
            bool(facts.turn_end),
            "The model learns to stop by it.",
        ),
    ]


def template_extras(facts: TemplateFacts) -> str:
    """What else a template writes, in a sentence."""
    able = [
        words
        for words, does in (
            ("calls of tools", facts.writes_calls),
            ("lists of tools", facts.writes_tools),
            ("thoughts", facts.writes_thoughts),
        )
        if does
    ]
    return as_sentence(f"It also writes {' and '.join(able)}") if able else "It writes plain turns only."


def template_name(name: str) -> str:
    """A template's name as a person reads it."""
    if name == "auto":
        return "the model's own"
    if name == "plain":
        return "a plain one, as the model has none"
    return name if name in TEMPLATES else Path(name).name


def kept_in_words(facts: DatasetFacts) -> str:
    """A sentence with the numbers of rows to learn from and held out; they add up to the rows that are used."""
    report = facts.report
    if report is None or not report.training_rows:  # of an older engine
        return f"{facts.train_rows:,} rows to learn from, {facts.validation_rows:,} held out."
    documents = facts.train_rows + facts.validation_rows
    several = f", as {documents:,} documents" if documents != report.used_rows else ""
    return f"{plural(report.training_rows, 'row')} to learn from, {report.held_out_rows:,} held out{several}."


def cut_in_words(cut: CutLine, facts: DatasetFacts) -> str:
    """What a longest length would cut."""
    if not cut.rows_cut:
        return "cuts nothing"
    used = max(facts.train_rows + facts.validation_rows, 1)
    whole = facts.tokens + (facts.report.tokens_lost if facts.report else 0)
    lost = percent(cut.tokens_lost / max(whole, 1), 1)
    return f"cuts {plural(cut.rows_cut, 'row')} ({percent(min(cut.rows_cut / used, 1.0), 1)}), {lost} of the tokens"
