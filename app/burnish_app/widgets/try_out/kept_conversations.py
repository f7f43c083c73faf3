"""The conversations that made room for another one: none is lost, and each can be brought back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from burnish_app.widgets.try_out.chat_pane import ChatPane, KeptPane

_MOST = 20  # conversations of one run


class KeptConversations:
    """Keeps what stood in the panes, and turns through it. Each run has conversations of its own.

    Args:
        panes: panes of the page.
    """

    def __init__(self, panes: Sequence[ChatPane]) -> None:
        self._panes = panes
        self._kept: dict[Hashable, list[list[KeptPane]]] = {}

    def has_any(self, owner: Hashable) -> bool:
        """Whether there is a conversation to bring back.

        Args:
            owner: run and model that it is with.
        """
        return bool(self._kept.get(owner))

    def keep(self, owner: Hashable, *, last: bool = True) -> None:
        """Keep what stands in the panes, unless nobody was asked anything.

        Args:
            owner: run and model that it is with.
            last: whether it is brought back before the others, not after them.
        """
        if any(pane.question for pane in self._panes):
            kept = self._kept.setdefault(owner, [])
            kept.insert(len(kept) if last else 0, [pane.keep() for pane in self._panes])
            del kept[:-_MOST]

    def bring_back(self, owner: Hashable) -> None:
        """Show the conversation that was kept last, and keep what is shown now in its place."""
        shown = self._kept[owner].pop()
        self.keep(owner, last=False)
        for pane, kept in zip(self._panes, shown, strict=True):
            pane.bring_back(kept)
