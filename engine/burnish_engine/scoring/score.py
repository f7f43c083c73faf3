"""Choose the rows of a score, and score a model's replies to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.task_score import TaskReply, TaskScore
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.metrics import make_metric, same_text

_MOST_FAILURES = 5  # replies that are kept to be read
_SHOWN = 300  # characters of each of their texts
_THOUGHTS = {"reasoning_content"}  # key under which the rows' readers keep thoughts apart from a reply
NO_ROW_REMEDY = 'Hold rows out (data.validation_share), choose another metric, or set task.metric = "none".'
Turn = dict[str, str]


class TaskRow(BaseModel):
    """A held-out row that is scored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: list[Turn] = Field(description="Turns before the reply.")
    wanted: str = Field(description="The row's own reply.")


class TaskRows(BaseModel):
    """The rows of a score and how they are scored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    section: TaskSection
    rows: list[TaskRow]
    prompt_tokens: int = Field(default=0, description="Tokens of the longest prompt; 0: not known.")
    left_out: dict[str, int] = Field(default={}, description="Reason to number of held-out rows that are not scored.")

    def score(self, replies: Sequence[tuple[str, bool]]) -> TaskScore:
        """Score replies.

        Args:
            replies: for each row text and whether the model ended it by itself.
        """
        reasons = self.reasons(replies)
        failures = [
            TaskReply(
                row=number,
                asked=_shortened(row.messages[-1]["content"], end=True),
                wanted=_shortened(row.wanted),
                reply=_shortened(text),
                why=why,
            )
            for number, (row, (text, _), why) in enumerate(zip(self.rows, replies, reasons, strict=True), start=1)
            if why
        ]
        return TaskScore(
            metric=self.section.metric,
            passed=[not why for why in reasons],
            cut=sum(not stopped for _, stopped in replies),
            failures=failures[:_MOST_FAILURES],
        )

    def reasons(self, replies: Sequence[tuple[str, bool]]) -> list[str]:
        """Say for each reply what is wrong with it, in half a sentence; empty where it is right.

        A reply that was cut is not right: what comes behind the cut would count too, and it may never end. Thoughts
        before a reply do not count; a regular expression alone sees them, since it may ask for them.

        Args:
            replies: for each row text and whether the model ended it by itself.
        """
        metric = make_metric(self.section, [row.wanted for row in self.rows])
        whole = self.section.metric == "regex"
        found = list[str]()
        for (text, ended), row in zip(replies, self.rows, strict=True):
            why = metric.why_wrong((text if whole else without_thoughts(text)).strip(), row.wanted.strip())
            found.append(why or ("" if ended else f"it does not end within {self.section.max_tokens} tokens"))
        return found

    @property
    def left_out_text(self) -> str:
        """Half a sentence on rows that are not scored; empty where there are none."""
        return "; ".join(f"{count} not scored: {why}" for why, count in self.left_out.items())


def no_row_text(section: TaskSection, left_out: Mapping[str, int]) -> str:
    """Say that no held-out row can be scored, and why.

    Args:
        section: section of the recipe.
        left_out: reason to number of rows.
    """
    why = "; ".join(f"{count} rows: {reason}" for reason, count in left_out.items())
    return f'No held-out row can be scored by task.metric = "{section.metric}" ({why or "there are none"}).'


def without_thoughts(text: str) -> str:
    """Return a reply without the thoughts before it; empty where they do not end.

    A template may have opened them, so that only their end stands in the reply.
    """
    before, end, answer = text.partition("</think>")
    if end:
        return answer
    return "" if before.lstrip().startswith("<think>") else text


def find_rows(
    section: TaskSection,
    chats: Iterable[Sequence[Mapping[str, Any]]],
    prompt_tokens: Callable[[list[Turn]], int | None] | None = None,
    longest: int = 0,
) -> TaskRows:
    """Find the first held-out rows that can be scored; there may be none.

    Args:
        section: section of the recipe, with a metric.
        chats: conversations of the held-out rows, in order.
        prompt_tokens: function that counts the tokens of the turns before a reply, and returns None where the chat
            template refuses them; None: rows of any length are taken.
        longest: most tokens before a reply.
    """
    found, left_out, most = list[TaskRow](), Counter[str](), 0
    known = [_row(chat) for chat in chats]
    usable = [row for row in known if row is not None]
    if len(usable) < len(known):
        left_out["no conversation in plain text that ends with a reply"] = len(known) - len(usable)
    section = _with_choices(section, usable)
    metric = make_metric(section, [row.wanted for row in usable])
    for row in usable:
        if len(found) == section.max_rows:
            break
        why = metric.why_not_scorable(row.wanted.strip())
        if why:
            left_out[f"the row's own reply cannot be used, as {why}"] += 1
            continue
        tokens = prompt_tokens(row.messages) if prompt_tokens is not None else 0
        if tokens is None:
            left_out["the chat template refuses the turns before the reply"] += 1
        elif tokens > longest:
            left_out[f"more than {longest:,} tokens before the reply"] += 1
        else:
            found.append(row)
            most = max(most, tokens)
    return TaskRows(section=section, rows=found, prompt_tokens=most, left_out=dict(left_out))


def choose_rows(
    section: TaskSection,
    chats: Iterable[Sequence[Mapping[str, Any]]],
    prompt_tokens: Callable[[list[Turn]], int | None] | None = None,
    longest: int = 0,
) -> TaskRows:
    """Choose the first held-out rows that can be scored; arguments as for `find_rows`.

    Raises:
        UsageError: No row can be scored.
    """
    found = find_rows(section, chats, prompt_tokens, longest)
    if not found.rows:
        raise UsageError(no_row_text(section, found.left_out), NO_ROW_REMEDY)
    return found


def _with_choices(section: TaskSection, rows: Sequence[TaskRow]) -> TaskSection:
    """Name the choices that the rows have, where the recipe names none and there are several."""
    choices = {same_text(row.wanted, ignore_case=True): row.wanted.strip() for row in reversed(rows)}
    if section.metric != "choice" or section.choices or len(choices) < 2:
        return section
    return section.model_copy(update={"choices": [*reversed(choices.values())]})


def _row(chat: Sequence[Mapping[str, Any]]) -> TaskRow | None:
    """Make the row of a conversation that ends with a reply in text; None of others, such as calls of tools.

    Thoughts before the reply are left out, as those of the models are.
    """
    if len(chat) < 2 or chat[-1].get("role") != "assistant":
        return None
    if not all(isinstance(turn.get("content"), str) for turn in chat) or not chat[-1]["content"].strip():
        return None
    allowed = {"role", "content"}
    if any(turn.keys() - allowed for turn in chat[:-1]) or chat[-1].keys() - allowed - _THOUGHTS:
        return None
    return TaskRow(messages=[dict(turn) for turn in chat[:-1]], wanted=chat[-1]["content"])


def _shortened(text: str, *, end: bool = False) -> str:
    if len(text) <= _SHOWN:
        return text
    return f"...{text[3 - _SHOWN :]}" if end else f"{text[: _SHOWN - 3]}..."
