"""Text about a dataset: shapes, meanings of columns, findings, templates and changes. Pure, no Qt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from burnish_app.look.language import tr
from burnish_app.wording.numbers import as_sentence, decimal_text, percent, plural
from burnish_engine.contract.facts.data_report import FileStatus, RowPlace, Setting, TaskHint, TemplateFacts
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.serve.replies import Preview

SHAPES = {
    "messages": "conversations",
    "sharegpt": tr("conversations (ShareGPT)"),
    "alpaca": "instructions",
    "prompt_completion": tr("prompt and completion"),
    "preference": tr("pairs of a better and a worse reply"),
    "kto": tr("replies labeled good or bad"),
    "segments": tr("text of which parts are learned"),
    "text": tr("plain text"),
}
_ROLES = {
    "prompt": (tr("Prompt"), tr("what is asked")),
    "reply": (tr("Reply"), tr("what is replied, and learned")),
    "system": (tr("System"), tr("message before the conversation")),
    "context": (tr("Context"), tr("what the prompt is about")),
    "history": (tr("Earlier turns"), tr("of the same conversation")),
    "conversation": (tr("Conversation"), tr("all turns in one column")),
    "chosen": (tr("Chosen"), tr("the better reply of a pair")),
    "rejected": (tr("Rejected"), tr("the worse reply of a pair")),
    "label": (tr("Label"), tr("whether the reply is good or bad")),
    "text": (tr("Text"), tr("plain text, all of it learned")),
    "segments": (tr("Parts"), tr("of a text, each learned or not")),
    "tools": (tr("Tools"), tr("that may be called")),
    "reasoning": (tr("Thoughts"), tr("before the reply")),
    "": (tr("Ignored"), tr("the column does not count")),
}
"""Name and explanation of each role of a column."""
TEMPLATES = ("auto", "chatml", "llama3", "gemma", "mistral", "zephyr", "phi3", "vicuna", "alpaca")
"""Names of the built-in templates; any other value is a file."""
SURE, FAIRLY_SURE = 0.9, 0.7
_BY_LINE = {"jsonl", "csv", "txt", "markdown"}
_MAX_ROWS_NAMED = 8

ACTIONS = {
    ("duplicates", "drop"): tr("Leave out copies"),
    ("duplicates", "drop_near"): tr("Leave out near copies"),
    ("leaks", "drop"): tr("Take them out of training"),
    ("degenerate", "drop"): tr("Leave them out"),
    ("secrets", "drop"): tr("Leave them out"),
    ("addresses", "drop"): tr("Leave them out"),
    ("damaged", "drop"): tr("Leave them out"),
    ("control_tokens", "drop"): tr("Leave them out"),
    ("tools", "drop"): tr("Leave them out"),
    ("unwritten", "drop"): tr("Leave them out"),
    ("unwritten", "respell"): tr("Write them in an equal form"),
    ("placeholders", "drop"): tr("Leave them out"),
    ("overlong", "drop"): tr("Leave them out"),
    ("overlong", "split"): tr("Split them"),
    ("overlong", "truncate"): tr("Cut them"),
    ("broken_rows", "drop"): tr("Continue without such rows"),
    ("encoding", "cp1252"): tr("Read as Windows-1252"),
}
"""Button texts, keyed by (field of the recipe's data section, value that the button sets)."""
DONE = {
    ("duplicates", "drop"): tr("Copies of earlier rows are left out."),
    ("duplicates", "drop_near"): tr("Copies and near copies of earlier rows are left out."),
    ("leaks", "drop"): tr("Training rows that are held out too are left out."),
    ("degenerate", "drop"): tr("Rows whose reply repeats itself or says nothing are left out."),
    ("secrets", "drop"): tr("Rows with what looks like a key or a password are left out."),
    ("addresses", "drop"): tr("Rows with an e-mail address are left out."),
    ("damaged", "drop"): tr("Rows whose letters were lost or garbled are left out."),
    ("control_tokens", "drop"): tr("Rows that spell out a control token are left out."),
    ("tools", "drop"): tr("Rows with tools that the template does not write are left out."),
    ("unwritten", "drop"): tr("Rows that the template does not write whole are left out."),
    ("unwritten", "respell"): tr("Rows that the template does not write whole are written in an equal form."),
    ("placeholders", "drop"): tr("Rows that learn a placeholder are left out."),
    ("overlong", "drop"): tr("Rows that are too long are left out."),
    ("overlong", "split"): tr("Rows that are too long are split."),
    ("overlong", "truncate"): tr("Rows that are too long are cut."),
    ("broken_rows", "drop"): tr("Rows that cannot be read are left out."),
}
"""Sentences for fields that are set, keyed by (field of the data section, value)."""
CLEANING = (
    "duplicates", "leaks", "degenerate", "secrets", "addresses", "damaged", "control_tokens", "tools", "unwritten",
    "placeholders", "overlong", "broken_rows", "encoding",
)  # fmt: skip
_SETTING = re.compile(r'data\.(\w+) = "([^"]+)"')

RowFate = Literal["cut", "dropped", "continued"]
"""Fate of a row that is longer than the maximum length."""


class DataChange(NamedTuple):
    """A field of the data section whose value is not its default, with the sentence that says so."""

    field: str
    text: str
    default: Any


class TemplateCheck(NamedTuple):
    """One result of checking a chat template: its text, whether it is good, and a hint."""

    text: str
    good: bool
    hint: str


_OBJECTIVES = {
    "dpo": (
        tr("Prefer the chosen reply (DPO)"),
        tr(
            "The usual choice for pairs. It compares with the model as it is now, so that all else changes little; "
            "that takes one pass over the rows before training."
        ),
    ),
    "orpo": (
        tr("Learn the chosen reply and prefer it (ORPO)"),
        tr("Needs no reference and learns the chosen replies as well: for a model that does not reply well yet."),
    ),
    "simpo": (
        tr("Prefer the reply that is likelier per token (SimPO)"),
        tr("Needs no reference and compares means, so that long replies have no advantage."),
    ),
    "kto": (
        tr("Learn from good and bad replies (KTO)"),
        tr("The usual choice for labels: each reply counts for itself, so no pairs are needed."),
    ),
    "grpo": (
        tr("Try and be rewarded (GRPO)"),
        tr("The model writes replies of its own. Those that are rewarded more than others become likelier."),
    ),
}
"""Titles of objectives, and when each is the right one."""
_GOOD = {
    "kto": (
        tr("Learn only replies labeled good"),
        tr("Ordinary training on the good replies; the others are not used."),
    ),
    "preference": (
        tr("Learn only the chosen reply"),
        tr("Ordinary training on the chosen replies; the rejected ones are not used."),
    ),
}
_REPLIES = (tr("Learn the replies"), tr("Ordinary training: what the rows reply becomes likelier."))
"""The same of ordinary training, by the shape of rows that say what is preferred, and for all others."""


def shape_text(shape: str) -> str:
    """Return the plain name of a row shape, or of several shapes joined by commas."""
    return ", ".join(SHAPES.get(one, one) for one in shape.split(", "))


def file_text(files: Sequence[FileStatus]) -> str:
    """Return what was read under one of the recipe's names, a file or a folder of files.

    Args:
        files: status of its files.
    """
    good = [file for file in files if not file.problem]
    rows = plural(sum(file.rows for file in good), "row")
    return tr("{rows} in {files}").format(rows=rows, files=plural(len(good), "file")) if len(files) > 1 else rows


def role_text(role: str) -> str:
    """Return the name of a column's role."""
    return _ROLES[role][0]


def role_hint(role: str) -> str:
    """Return what a column of a role holds."""
    return _ROLES[role][1]


def preview_text(preview: Preview) -> str:
    """Return the figures of a row as it is trained on."""
    if not preview.tokens:
        return ""
    parts = [
        plural(preview.tokens, "token"),
        tr("{share} learned").format(share=percent(preview.supervised_tokens / preview.tokens)),
    ]
    if preview.cut_tokens:
        parts.append(tr("{cut} cut off").format(cut=plural(preview.cut_tokens, "token")))
    if preview.parts > 1:
        parts.append(tr("the first of {parts} rows that it becomes").format(parts=preview.parts))
    return "  ·  ".join(parts)


def confidence_text(confidence: float) -> str:
    """Return how sure a reading of the columns is, from its confidence of 0 to 1."""
    return tr("sure") if confidence >= SURE else tr("fairly sure") if confidence >= FAIRLY_SURE else tr("a guess")


def rows_text(places: Sequence[RowPlace], count: int, facts: DatasetFacts) -> str:
    """Return which lines or rows of which file are meant; empty if they are unknown.

    Args:
        places: first of the rows, in order.
        count: number of all rows that are meant.
        facts: facts about the dataset with the rows.
    """
    shown = places[:_MAX_ROWS_NAMED]
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
        where = tr("{numbers}{more} of {name}").format(numbers=numbers, more=more, name=name)
    else:
        where = (
            "; ".join(tr("{numbers} of {name}").format(numbers=numbers, name=name) for name, numbers in by_file) + more
        )
    return f"{kind.capitalize()}{'s' if len(shown) > 1 else ''} {where}"


_NUMBER_ACTIONS = {
    "max_length": tr("Allow {value} tokens"),
    "label_smoothing": tr("Expect a share of {value} swapped labels"),
    "desirable_weight": tr("Weigh good replies {value} times"),
    "undesirable_weight": tr("Weigh bad replies {value} times"),
}
"""Texts of buttons for settings that are numbers."""


def details_title(findings: int) -> str:
    """Return the title of what is folded on the page Data: findings, figures and the chat template.

    Args:
        findings: number of findings.
    """
    return tr("Details  ·  {findings}").format(findings=plural(findings, "finding")) if findings else tr("Details")


def action_text(setting: Setting) -> str:
    """Return the text of the button that applies a setting."""
    field = setting.key.rpartition(".")[2]
    if setting.key == "preference.objective":
        return tr("Use {objective}").format(objective=str(setting.value).upper().replace("SIMPO", "SimPO"))
    known = ACTIONS.get((field, str(setting.value)))
    value = decimal_text(setting.value) if isinstance(setting.value, float) else setting.value
    return known or _NUMBER_ACTIONS.get(field, "{key} = {value}").format(key=setting.key, value=value)


def named_settings(text: str) -> list[Setting]:
    """Find the settings of the data section that a message names, such as `data.broken_rows = "drop"`, once each."""
    found = dict.fromkeys(_SETTING.findall(text))
    return [Setting(key=f"data.{field}", value=value, says="") for field, value in found if (field, value) in ACTIONS]


def data_changes(data: DataSection) -> list[DataChange]:
    """List the data section's fields that change or drop rows and are not at their default."""
    usual = DataSection()
    found = []
    for field in CLEANING:
        value = getattr(data, field)
        if value != getattr(usual, field):
            says = DONE.get((field, value)) or tr("The files are read as {value}.").format(value=value)
            found.append(DataChange(field, says, getattr(usual, field)))
    return found


def further_warnings(facts: DatasetFacts) -> list[str]:
    """Return the warnings that no finding repeats."""
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


def template_checks(facts: TemplateFacts) -> list[TemplateCheck]:
    """Return the results of checking a chat template."""
    end = facts.turn_end or "nothing"
    return [
        TemplateCheck(
            tr("Takes a system message") if facts.takes_system else tr("Takes no system message"),
            facts.takes_system,
            tr("Without it, system messages in rows are refused or lost."),
        ),
        TemplateCheck(
            tr("Allows the same role twice in a row") if facts.takes_two_users else tr("Roles must alternate"),
            facts.takes_two_users,
            tr("Where roles must alternate, rows with two turns of one role in a row cannot be used."),
        ),
        TemplateCheck(
            tr("Writes what stands before a reply") if facts.has_prompt else tr("Writes nothing before a reply"),
            facts.has_prompt,
            tr("The generation prompt: the model is asked with it, so it should be there."),
        ),
        TemplateCheck(
            tr("Replies begin as they are asked for")
            if facts.prompt_fits
            else tr("Replies begin otherwise than asked for"),
            facts.prompt_fits,
            tr("Where they do not, the model is asked otherwise than it was trained."),
        ),
        TemplateCheck(
            tr("Replies end with {end}").format(end=end)
            + (tr(", the end-of-sequence token") if facts.ends_with_eos else ""),
            bool(facts.turn_end),
            tr("The model learns to stop by it."),
        ),
    ]


def template_extras(facts: TemplateFacts) -> str:
    """Return a sentence about what a template writes besides turns: tool calls, tool lists, thoughts."""
    able = [
        text
        for text, does in (
            (tr("calls of tools"), facts.writes_calls),
            (tr("lists of tools"), facts.writes_tools),
            ("thoughts", facts.writes_thoughts),
        )
        if does
    ]
    return (
        as_sentence(tr("It also writes {able}").format(able=" and ".join(able)))
        if able
        else tr("It writes plain turns only.")
    )


def template_name(name: str) -> str:
    """Return a template's name for display."""
    if name == "auto":
        return tr("the model's own")
    if name == "plain":
        return tr("a plain one, as the model has none")
    return name if name in TEMPLATES else Path(name).name


def kept_rows_text(facts: DatasetFacts) -> str:
    """Return a sentence with the numbers of training and held-out rows; they add up to the rows that are used."""
    report = facts.report
    if report is None:
        return tr("{train_rows:,} rows to learn from, {validation_rows:,} held out.").format(
            train_rows=facts.train_rows, validation_rows=facts.validation_rows
        )
    documents = facts.train_rows + facts.validation_rows
    several = tr(", as {documents:,} documents").format(documents=documents) if documents != report.used_rows else ""
    return tr("{training_rows} to learn from, {held_out_rows:,} held out{several}.").format(
        training_rows=plural(report.training_rows, "row"), held_out_rows=report.held_out_rows, several=several
    )


def long_row_fate(shape: str, overlong: str) -> RowFate:
    """Return what happens to rows beyond the maximum length.

    Args:
        shape: shape of the dataset.
        overlong: value of the recipe's data.overlong.
    """
    if overlong == "drop":
        return "dropped"
    return "continued" if overlong == "split" or (overlong == "auto" and shape == "text") else "cut"


def cut_text(steps: Sequence[tuple[int, int, int]], max_length: int, fate: RowFate = "cut") -> str:
    """Return how many rows and tokens a maximum length concerns.

    Args:
        steps: `length_steps` of the report, from 0; others may follow in any order.
        max_length: maximum length, tokens; between two steps, the lower one counts.
        fate: what happens to longer rows.
    """
    length, rows, tokens = max((step for step in steps if step[0] <= max_length), default=steps[0])
    if fate == "continued":
        return tr("A longer row continues in a further one after {max_length:,} tokens").format(max_length=max_length)
    if fate == "dropped":
        tokens += rows * length
    start = tr("Cut at {max_length:,}") if fate == "cut" else tr("Left out beyond {max_length:,}")
    lost = tr("every row is whole") if fate == "cut" else tr("no row is")
    if rows:
        share = tokens / max(steps[0][2], 1)
        small = tr("less than 0.1 %") if share < 0.0005 else percent(share, 1)
        lost = tr("{rows}, {share} of the tokens").format(rows=plural(rows, "row"), share=small)
    return f"{start.format(max_length=max_length)}: {lost}"


def objective_title(objective: str, shape: str) -> str:
    """Name what an objective learns, for a choice among several.

    Args:
        objective: value of the recipe's preference.objective.
        shape: shape of the dataset.
    """
    if objective == "sft":
        return _GOOD.get(shape, _REPLIES)[0]
    return _OBJECTIVES[objective][0]


def objective_reason(objective: str, shape: str) -> str:
    """Say when an objective is the right one.

    Args:
        objective: value of the recipe's preference.objective.
        shape: shape of the dataset.
    """
    if objective == "sft":
        return _GOOD.get(shape, _REPLIES)[1]
    return _OBJECTIVES[objective][1]


def recognized_text(shape: str, task: TaskHint | None) -> str:
    """Say what was recognized in rows that leave a choice of objectives.

    Args:
        shape: shape of the dataset.
        task: how its replies can be checked; None: not known.
    """
    if shape not in _GOOD and task is not None:
        return tr("{says} So replies of the model can be checked.").format(says=tr(task.says))
    return tr("Recognized: {rows}. They say what is preferred.").format(rows=SHAPES.get(shape, shape))
