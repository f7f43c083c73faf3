"""Checks the content of rows and of their renderings, and logs what is found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.problems import RowError, RowRef
from burnish_engine.data.rows import content_checks
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.rows.literals import LiteralText
from burnish_engine.data.rows.media import has_media_tag
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.templates.written import KINDS


class RowChecks:
    """The checks of a dataset's rows.

    Args:
        data: settings that say for which findings a row is dropped.
        special_tokens: texts of the tokenizer's special tokens.
        takes_tools: whether the chat template writes descriptions of tools.
    """

    def __init__(self, data: DataSection, special_tokens: Iterable[str], *, takes_tools: bool) -> None:
        longest_first = sorted(set(special_tokens), key=len, reverse=True)
        self._control_tokens = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._data, self._takes_tools = data, takes_tools

    def content(self, conversation: Conversation, ref: RowRef, log: RowLog) -> None:
        """Check a row, tool calls and reasoning included.

        Raises:
            RowError: A check finds something that the recipe drops rows for.
        """
        texts = [conversation.text or "", *(message.content for message in conversation.messages)]
        whole = "\n".join(texts)
        data = self._data
        control = next(filter(None, map(self._control_tokens.search, texts)), None)
        if conversation.spans is not None:
            control = None  # rows of segments spell their tokens out on purpose
        placeholder = content_checks.placeholder_in(conversation)
        degenerate = content_checks.degenerate_in(conversation)
        unwritten = conversation.tools and not self._takes_tools
        found = [
            *((what, data.secrets) for what in content_checks.secrets_in(whole)),
            *((what, data.damaged) for what in content_checks.damage_in(whole)),
            *([(degenerate, data.degenerate)] if degenerate else []),
            *([(content_checks.EMAIL, data.addresses)] if content_checks.addresses_in(whole) else []),
            *([(content_checks.CONTROL, data.control_tokens)] if control else []),
            *([(content_checks.TOOLS_NOT_WRITTEN, data.tools)] if unwritten else []),
            *([(content_checks.STRAY_RESULT, _kept(data))] if content_checks.has_stray_result(conversation) else []),
            *([(content_checks.PLACEHOLDER, data.placeholders)] if placeholder else []),
            *([(content_checks.MEDIA_TAG, "keep")] if has_media_tag(texts) else []),
            *([(content_checks.LITERAL, "keep")] if _has_literal(conversation) else []),
        ]
        for what, setting in found:
            if setting == "drop":
                raise RowError(f"looks like {what}" if what in content_checks.SECRETS else what)
        for what, _ in found:
            log.noticed.add(what, ref)
        if control:
            log.control_example = log.control_example or control[0]
        if placeholder:
            log.first_texts.setdefault(content_checks.PLACEHOLDER, placeholder)
        if conversation.text is None and all(message.role != "system" for message in conversation.messages):
            log.noticed.add(content_checks.NO_SYSTEM, ref)
        log.tool_call_rows += any("tool_calls" in message.extras for message in conversation.messages)
        log.reasoning_rows += any("reasoning_content" in message.extras for message in conversation.messages)

    def whole(self, pieces: Sequence[RenderedRow], ref: RowRef, log: RowLog) -> None:
        """Check that the chat template writes all that a row says.

        Args:
            pieces: renderings of the row: one, both of a pair, or those of a row that was split.
            ref: reference of the row.
            log: log that findings are added to.

        Raises:
            RowError: The template leaves something out, and the recipe drops such rows.
        """
        lost = {one.kind for rendered in pieces for one in rendered.lost}
        for kind in (kind for kind in KINDS if kind in lost):
            if self._data.unwritten == "drop":
                raise RowError(kind)
            log.noticed.add(kind, ref)
        if lost:
            log.offers = sorted({*log.offers, *(kind for rendered in pieces for kind in rendered.offers)})

    @staticmethod
    def rendering(conversation: Conversation, rendered: RenderedRow, ref: RowRef, log: RowLog) -> None:
        """Check how the chat template begins and ends a row's last reply."""
        if conversation.text is not None:
            return
        if rendered.turn_end:
            log.turn_ends = sorted({*log.turn_ends, rendered.turn_end})
        elif conversation.messages[-1].role == "assistant":
            log.noticed.add(content_checks.NO_TURN_END, ref)
        if rendered.prompt_differs:
            log.noticed.add(content_checks.PROMPT_DIFFERS, ref)


def _kept(data: DataSection) -> str:
    return "drop" if data.unwritten == "drop" else "keep"


def _has_literal(conversation: Conversation) -> bool:
    """Whether a reply, or the text, is a number or a boolean in the file."""
    replies = (message.content for message in conversation.messages if message.role == "assistant")
    return isinstance(conversation.text, LiteralText) or any(isinstance(reply, LiteralText) for reply in replies)
