"""Warns, in sentences, where the dataset and the chat template do not go together well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.contract.facts.data_report import TemplateFacts
from burnish_engine.data.files.problems import ROWS_NAMED
from burnish_engine.data.report.findings import row_list_text, row_places
from burnish_engine.data.rows import content_checks
from burnish_engine.data.rows.part_rows import RowSource
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.templates.template import ChatTemplate


def template_warnings(
    template: ChatTemplate,
    tokenizer: Any,
    found: RowLog,
    sources: Sequence[RowSource],
    *,
    missing: Sequence[str],
    checked: TemplateFacts,
) -> list[str]:
    """List the template's problems with these rows, as sentences.

    Args:
        template: chat template that rendered the rows.
        tokenizer: transformers tokenizer of the model.
        found: log of the rows.
        sources: parts of the dataset.
        missing: control tokens of the template that the vocabulary lacks.
        checked: facts of the template.
    """
    warnings = []
    chats = any(not source.layout.is_text for source in sources)
    if chats and template.is_default:
        warnings.append(
            "The model has no chat template (it is a base model), so a plain one is used: '### User:' and "
            "'### Assistant:' headings, each reply ended by the end-of-sequence token. Use the exported model with it."
        )
    if chats and template.writes_date:
        warnings.append(
            f"The chat template writes today's date; all rows are trained with {template.today:%d %b %Y}, so that the "
            "run can be repeated."
        )
    if chats and checked.name not in ("auto", "plain"):
        warnings.append(
            f"Rows are written with the template {checked.name}, not the model's own: the trained model has to be "
            "asked with it too."
        )
    if chats and missing:
        warnings.append(
            f"The vocabulary does not have {', '.join(missing)} of the template {checked.name} as tokens of their own, "
            "so each is several tokens, and the end of a reply is learned as text."
        )
    if chats and not checked.has_prompt and not template.is_default:
        warnings.append(
            "The chat template writes nothing before a reply (no generation prompt); replies are learned from where "
            "they begin."
        )
    names = [source.part.name for source in sources]
    if content_checks.NO_TURN_END in found.noticed.counts:
        added = f"{tokenizer.eos_token} was appended and is learned" if tokenizer.eos_token else "and there is none"
        warnings.append(
            "The chat template puts no end-of-turn token after the last reply of "
            f"{_rows(found, content_checks.NO_TURN_END, names)}; {added}. Another data.template may put one."
        )
    if content_checks.PROMPT_DIFFERS in found.noticed.counts:
        warnings.append(
            f"In {_rows(found, content_checks.PROMPT_DIFFERS, names)} the last reply does not begin the way the chat "
            "template's generation prompt says, so the model will be asked otherwise than it was trained. "
            "Another data.template may fit."
        )
    return warnings


def _rows(found: RowLog, what: str, names: Sequence[str]) -> str:
    """Say in how many rows something was noticed, and name the first of them."""
    count = found.noticed.counts[what]
    first = row_list_text(row_places(found.noticed.examples[what], names), several=len(names) > 1)
    if count == 1:
        return f"one row ({first})"
    return f"{count} rows ({first}{' ...' if count > min(len(found.noticed.examples[what]), ROWS_NAMED) else ''})"
