"""Long texts are tokenized in slices, so that memory stays bounded; their ids are those of the whole text.

The `tokenizers` library takes about 250 bytes for each character of a text, so 50 MB at once would take 12 GB. Two
neighboring slices overlap. They are joined in the overlap at a place around which both have the same tokens. What a
tokenizer makes of a place depends on the text near by, so this gives the ids of the whole. Where the slices agree
nowhere, such as in one letter repeated for megabytes, the later slice begins anew where a token of the earlier ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

SLICE_CHARS = 2**18
"""Characters of a slice; a slice takes about 70 MB while it is tokenized."""
OVERLAP_CHARS = 2**11
"""Characters on either side of the place where two slices are joined."""
_AGREEING = 8  # tokens on either side of a joint that both slices have

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Slice:
    """The tokens of a stretch of a text. T tokens.

    Attributes:
        ids: [T] token ids.
        offsets: [T, 2] first and one past the last character of each token, in the whole text.
        begin: first character of the stretch.
        end: one past its last character.
    """

    ids: Ids
    offsets: Offsets
    begin: int
    end: int

    def within(self, begin: int, end: int) -> Slice:
        """The tokens from one joint to the next."""
        kept = slice(*np.searchsorted(self.offsets[:, 0], (begin, end)).tolist())
        last = len(self.ids) if end >= self.end else kept.stop
        first = 0 if begin <= self.begin else kept.start
        return Slice(self.ids[first:last], self.offsets[first:last], begin, end)

    def joints(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Numbers of the tokens before which the text can be cut: no earlier token reaches past their beginning.

        Args:
            low: first character of the stretch that is looked at.
            high: one past its last character.
        """
        starts, ends = self.offsets.T
        reached = np.maximum.accumulate(np.concatenate([[0], ends[:-1]])) if len(ends) else ends
        return np.flatnonzero((starts >= reached) & (starts > low) & (starts < high))


def whole(encoding: Any, text: str) -> Slice:
    """The tokens of a text that is tokenized at once.

    Args:
        encoding: `tokenizers.Encoding` of the text.
        text: what was tokenized.
    """
    return _placed(encoding, 0, len(text))


def sliced(encode: Callable[[str], Any], text: str) -> Iterator[Slice]:
    """The tokens of a text, slice by slice.

    Args:
        encode: gives the `tokenizers.Encoding` of a text.
        text: what is tokenized.
    """

    def tokens(begin: int) -> Slice:
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


def _placed(encoding: Any, begin: int, end: int) -> Slice:
    pairs = encoding.offsets
    offsets = np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
    return Slice(np.array(encoding.ids, dtype=np.int32), offsets + begin, begin, end)


def _agreed(left: Slice, right: Slice, seam: int) -> int | None:
    """The character near a seam where both slices have a joint with the same tokens around it; None without one."""
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


def _last_joint(left: Slice, seam: int) -> int:
    """The last character up to a seam at which a token begins; the slice's end if there is none."""
    found = left.joints(left.begin, seam + 1)
    return int(left.offsets[found[-1], 0]) if len(found) else left.end
