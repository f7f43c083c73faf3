"""The card with the replies of several runs to the same prompts."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from burnish_app.comparison.replies import PromptReplies
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ElidedLabel, body, caption, heading
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.compare.swatch import Swatch
from burnish_engine.contract.run.events import SampleDone

_MOST_PROMPTS = 6
_COLUMN_PX = 220


class RepliesCard(Card):
    """Shows prompts, and below each one the newest reply of every run."""

    def __init__(self) -> None:
        hint = tr("The newest of each run, as its recipe's prompts asked.")
        super().__init__(tr("Replies to the same prompts"), hint, icon_name="chat")
        self._shown: object = None
        self._list = fill(QVBoxLayout(), spacing_px=2 * UNIT)
        self.body.addLayout(self._list)
        self.hide()

    def show_replies(self, titles: Sequence[str], prompts: Sequence[PromptReplies]) -> None:
        """Show replies; without a prompt the card is hidden.

        Args:
            titles: title of each run.
            prompts: prompts with the replies of the runs, in the order of the titles.
        """
        now = (tuple(titles), tuple(prompts))
        if now == self._shown:
            return
        self._shown = now
        clear(self._list)
        for prompt in prompts[:_MOST_PROMPTS]:
            self._list.addWidget(_prompt(titles, prompt))
        if len(prompts) > _MOST_PROMPTS:
            more = tr("{n} more prompts are in the runs' own pages.").format(n=len(prompts) - _MOST_PROMPTS)
            self._list.addWidget(caption(more))
        self.setVisible(bool(prompts))


def _prompt(titles: Sequence[str], found: PromptReplies) -> QWidget:
    holder = QWidget()
    replies = [
        _reply(place, title, reply) for place, (title, reply) in enumerate(zip(titles, found.replies, strict=True))
    ]
    if found.before is not None:
        replies.insert(0, _reply(None, tr("Before training"), found.before))
    fill(
        QVBoxLayout(holder),
        heading(found.prompt),
        columns_layout(replies, 2 * UNIT, line_px=UNIT + 4, even=True, fill=True),
        spacing_px=UNIT,
    )
    return holder


def _reply(place: int | None, title: str, reply: SampleDone | None) -> QWidget:
    frame = QFrame()
    frame.setProperty("look", "inset")
    frame.setMinimumWidth(_COLUMN_PX)
    head = fill(QHBoxLayout(), spacing_px=UNIT)
    if place is not None:
        head.addWidget(Swatch(place))
    head.addWidget(ElidedLabel(title, tone="muted"), 1)
    column = fill(
        QVBoxLayout(frame),
        head,
        body(reply.reply if reply is not None else tr("Not asked yet."), "" if reply else "muted"),
        spacing_px=4,
        margins_px=(UNIT + 4, UNIT, UNIT + 4, UNIT + 2),
    )
    if reply is not None:
        ended = "" if reply.stopped else "  ·  " + tr("cut at the limit")
        column.addWidget(caption(tr("step {step}").format(step=f"{reply.step:,}") + ended))
    column.addStretch(1)
    return frame
