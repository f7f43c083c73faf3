"""Which pages are free, and which are shared by several replies. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable

PAGES_SHARE = 0.65
"""Share of free or idle memory that keys and values of replies may take; the rest is for prompts and steps."""


class Pages:
    """Numbers of pages; page 0 is never given away.

    Args:
        count: number of pages, page 0 included.
    """

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))
        self._users = [0] * count

    @property
    def free(self) -> int:
        """Number of free pages."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Take free pages.

        Raises:
            MemoryError: There are fewer.
        """
        if count > len(self._free):
            raise MemoryError(f"{count} pages are wanted and {len(self._free)} are free")
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._users[page] = 1
        return taken

    def share(self, pages: Iterable[int]) -> list[int]:
        """Use pages of another reply too."""
        shared = list(pages)
        for page in shared:
            assert self._users[page]
            self._users[page] += 1
        return shared

    def give_back(self, pages: Iterable[int]) -> None:
        """End a reply's use of pages; those that nobody uses are free."""
        for page in pages:
            assert self._users[page]
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)
