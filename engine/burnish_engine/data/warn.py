"""What a person should know of how the data and the model's chat template go together, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.contract.data_report import TemplateFacts
from burnish_engine.data import noticing
from burnish_engine.data.notes import Notes
from burnish_engine.data.report import row_places, rows_in_words
from burnish_engine.data.source import Source
from burnish_engine.data.template import ChatTemplate


def template_warnings(
    template: ChatTemplate,
    tokenizer: Any,
    found: Notes,
    sources: Sequence[Source],
    *,
    missing: Sequence[str],
    checked: TemplateFacts,
) -> list[str]:
    """What is odd about the template, for these rows.

    Args:
        template: The template.
        tokenizer: The tokenizer.
        found: What was noticed.
        sources: The parts.
        missing: Control tokens of the template that the vocabulary lacks.
        checked: What the template does.
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
    if noticing.OPEN in found.noticed.counts:
        added = f"{tokenizer.eos_token} was appended and is learned" if tokenizer.eos_token else "and there is none"
        warnings.append(
            "The chat template puts no end-of-turn token after the last reply of "
            f"{_rows(found, noticing.OPEN, names)}; {added}. Another data.template may put one."
        )
    if noticing.OTHERWISE in found.noticed.counts:
        warnings.append(
            f"In {_rows(found, noticing.OTHERWISE, names)} the last reply does not begin the way the chat template's "
            "generation prompt says, so the model will be asked otherwise than it was trained. Another data.template "
            "may fit."
        )
    return warnings


def _rows(found: Notes, what: str, names: Sequence[str]) -> str:
    """How many rows something was noticed in, and the first of them."""
    count = found.noticed.counts[what]
    first = rows_in_words(row_places(found.noticed.examples[what], names), several=len(names) > 1)
    if count == 1:
        return f"one row ({first})"
    return f"{count} rows ({first}{' ...' if count > len(found.noticed.examples[what]) else ''})"
