"""Tokenizes long texts in slices, so that memory stays bounded, with the same ids as the whole text at once.

The `tokenizers` library takes about 250 bytes for each character of a text, so 50 MB at once would take 12 GB. Two
neighboring slices overlap. They are joined in the overlap at a character around which both have the same tokens.
Tokenizers decide by the text near by, so this gives the ids of the whole text. Where the slices agree nowhere, such as
in one letter repeated for megabytes, the later slice begins anew where a token of the earlier one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

SLICE_CHARS = 2**18
"""Length of a slice without its overlaps; a slice takes about 70 MB while it is tokenized."""
OVERLAP_CHARS = 2**11
"""Overlap on either side of the seam between two slices, characters."""
_AGREEING = 8  # tokens on either side of a joint that must be equal in both slices

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenSlice:
    """The tokens of a stretch of a text. T tokens.

    Attributes:
        ids: [T] token ids.
        offsets: [T, 2] first and one past the last character of each token, in the whole text.
        begin: first character of the stretch.
        end: one past the last character of the stretch.
    """

    ids: Ids
    offsets: Offsets
    begin: int
    end: int

    def within(self, begin: int, end: int) -> TokenSlice:
        """Return the tokens from one joint to the next."""
        kept = slice(*np.searchsorted(self.offsets[:, 0], (begin, end)).tolist())
        last = len(self.ids) if end >= self.end else kept.stop
        first = 0 if begin <= self.begin else kept.start
        return TokenSlice(self.ids[first:last], self.offsets[first:last], begin, end)

    def joints(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Find the tokens before which the text can be cut, because no earlier token reaches past their beginning.

        Args:
            low: character after which joints are searched.
            high: character before which joints are searched.

        Returns:
            Indices of the tokens.
        """
        starts, ends = self.offsets.T
        reached = np.maximum.accumulate(np.concatenate([[0], ends[:-1]])) if len(ends) else ends
        return np.flatnonzero((starts >= reached) & (starts > low) & (starts < high))


def tokenize_slices(encode: Callable[[str], Any], text: str) -> Iterator[TokenSlice]:
    """Yield the tokens of a text, slice by slice.

    Args:
        encode: function from a text to its `tokenizers.Encoding`.
        text: text to tokenize.
    """

    def tokens(begin: int) -> TokenSlice:
        end = min(len(text), begin + SLICE_CHARS + 2 * OVERLAP_CHARS)
        return _placed(encode(text[begin:end]), begin, end)

    at, left = 0, tokens(0)
    while left.end < len(text):
        seam = left.end - OVERLAP_CHARS
        right = tokens(seam - OVERLAP_CHARS)
        joint = _agreed(left, right, seam)
        if joint is None:
            joint = _last_joint(left, seam)
            right = tokens(joint)
        yield left.within(at, joint)
        at, left = joint, right
    yield left.within(at, len(text))


def _placed(encoding: Any, begin: int, end: int) -> TokenSlice:
    pairs = encoding.offsets
    offsets = np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
    return TokenSlice(np.array(encoding.ids, dtype=np.int32), offsets + begin, begin, end)


def _agreed(left: TokenSlice, right: TokenSlice, seam: int) -> int | None:
    """Find a character near a seam where both slices have a joint with the same tokens around it; None without one."""
    low, high = seam - OVERLAP_CHARS // 2, seam + OVERLAP_CHARS // 2
    others = {int(right.offsets[index, 0]): int(index) for index in right.joints(low, high)[::-1]}
    for index in left.joints(low, high).tolist():
        start = int(left.offsets[index, 0])
        other = others.get(start)
        if other is None or min(index, other) < _AGREEING:
            continue
        ours, theirs = (slice(number - _AGREEING, number + _AGREEING) for number in (index, other))
        if np.array_equal(left.ids[ours], right.ids[theirs]) and np.array_equal(
            left.offsets[ours], right.offsets[theirs]
        ):
            return start
    return None


def _last_joint(left: TokenSlice, seam: int) -> int:
    """Find the last character up to a seam at which the slice can be cut; the slice's end if there is none."""
    found = left.joints(left.begin, seam + 1)
    return int(left.offsets[found[-1], 0]) if len(found) else left.end
