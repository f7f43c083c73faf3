"""Which documents are used, and what is said of the others; what equals what."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data.documents import Rows
from burnish_engine.data.mix import earlier_equal
from burnish_engine.data.near import near_pairs
from burnish_engine.data.pack import DATA_ORDER
from burnish_engine.data.problems import EXAMPLES_PER_REASON, Dropped
from burnish_engine.data.work import SPLITTING

NOTHING_LEFT = "nothing to learn after truncation"
"""How the reason begins for rows whose learned part lies behind the cut."""
SAME = "the same as an earlier row"
NEARLY_SAME = "nearly the same as an earlier row"
HELD_OUT_TOO = "held out as well"

Mask = npt.NDArray[np.bool_]


@dataclass
class Likeness:
    """What equals what among the documents that can be used. Row numbers are those in their files.

    Attributes:
        same: Documents that equal an earlier one.
        near: Documents that nearly equal an earlier one.
        searched: Whether the search for those went to its end.
        leaks: Held-out documents that are trained on too.
        near_leaks: Held-out documents that nearly equal one that is trained on.
    """

    same: Dropped = field(default_factory=Dropped)
    near: Dropped = field(default_factory=Dropped)
    searched: bool = True
    leaks: Dropped = field(default_factory=Dropped)
    near_leaks: Dropped = field(default_factory=Dropped)


class Selection:
    """Narrows all documents down to those that are used.

    Args:
        rows: All documents.
        data: The recipe's settings.
        dropped: Takes what is left out.
        order: version of the data order; in order 1, a held-out row that nearly equals both a training row and an
            earlier held-out row does not count as a near-duplicate.
    """

    def __init__(self, rows: Rows, data: DataSection, dropped: Dropped, order: int = DATA_ORDER) -> None:
        self._order = order
        self._rows, self._data, self._dropped = rows, data, dropped
        self._splits = data.overlong in SPLITTING
        self.likeness = Likeness()
        self.used: Mask = np.ones(len(rows), dtype=np.bool_)
        self._first_like: npt.NDArray[np.int64] = np.arange(len(rows), dtype=np.int64)

    def fit(self) -> None:
        """Leave out what is too long, and what has nothing to learn."""
        data, rows = self._data, self._rows
        nothing = rows.whole_supervised == 0
        overlong = (rows.whole_lengths > data.max_length) & (data.overlong == "drop")
        behind = (rows.supervised == 0) & ~nothing
        self._leave_out(overlong, f"longer than {data.max_length} tokens")
        self._leave_out(nothing, "nothing to learn")
        self._leave_out(behind, f"{NOTHING_LEFT} to {data.max_length} tokens")

    def compare(self, held_out_from: int, most_bytes: int) -> None:
        """Find equal and nearly equal documents, and leave out those that the recipe does not want.

        Args:
            held_out_from: Number of the first document of the validation files; equal ones count within each part.
            most_bytes: Near-duplicates are looked for where that takes no more memory, or where they are to be dropped.
        """
        parts = (np.arange(len(self.used)) >= held_out_from).astype(np.int64)
        known = np.flatnonzero(self.used)
        same = np.zeros(len(self.used), dtype=np.bool_)
        same[known] = earlier_equal(self._rows.digests[known] * 2 + parts[known])
        self._count(self.likeness.same, np.flatnonzero(same), SAME)
        considered = self.used & ~same
        dropping = self._data.duplicates == "drop_near"
        if dropping or len(self.used) * 64 <= most_bytes:
            first, self.likeness.searched = near_pairs(self._rows.bands, self._rows.ids, considered, thorough=dropping)
            near = considered & (first != np.arange(len(first))) & (parts[first] == parts)
            held_out = considered & (parts == 1)
            if self._order > 1 and held_out.any():  # of those, the earliest like one may be a training row
                own, whole = near_pairs(self._rows.bands, self._rows.ids, held_out, thorough=dropping)
                near |= held_out & (own != np.arange(len(own)))
                self.likeness.searched &= whole
            self._count(self.likeness.near, np.flatnonzero(near), NEARLY_SAME)
            self._first_like = first
        else:
            self.likeness.searched = False
            near = same & False
        if self._data.duplicates != "keep":
            self._leave_out(same, SAME)
        if dropping:
            self._leave_out(near, NEARLY_SAME)

    def leaks(self, train: npt.NDArray[np.int64], held_out: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Find held-out documents among those to train on.

        Args:
            train: Numbers of documents.
            held_out: Numbers of documents.

        Returns:
            What to train on: all of it, or less where the recipe wants no leaks.
        """
        digests, first = self._rows.digests, self._first_like
        leaked = np.isin(digests[held_out], digests[train])
        near = np.isin(first[held_out], first[train]) & ~leaked
        self._count(self.likeness.leaks, held_out[leaked], HELD_OUT_TOO)
        self._count(self.likeness.near_leaks, held_out[near], HELD_OUT_TOO)
        if self._data.leaks != "drop":
            return train
        out = np.isin(digests[train], digests[held_out]) | np.isin(first[train], first[held_out])
        mask = np.zeros(len(self.used), dtype=np.bool_)
        mask[train[out]] = True
        self._leave_out(mask, HELD_OUT_TOO)
        return train[~out]

    def leave_out(self, numbers: npt.NDArray[np.int64], reason: str) -> None:
        """Leave out some documents by number."""
        mask = np.zeros(len(self.used), dtype=np.bool_)
        mask[numbers] = True
        self._leave_out(mask, reason)

    @property
    def keeps_leaks(self) -> bool:
        """Whether held-out rows may be trained on too."""
        return self._data.leaks == "keep"

    @property
    def used_rows(self) -> int:
        """Rows of which a document is used; a row that was split is one."""
        return self.rows_of(np.flatnonzero(self.used))

    def rows_of(self, documents: npt.NDArray[np.int64]) -> int:
        """Number of rows that some documents are of.

        Args:
            documents: [k] numbers of documents; one may be there more than once.
        """
        return len(np.unique(self._row_keys[documents] if self._splits else documents))

    def continued(self, documents: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
        """Rows that became several documents.

        Args:
            documents: [k] numbers of documents, each once.

        Returns:
            The first document of each such row, and how many documents there are beyond those.
        """
        if not self._splits:
            return documents[:0], 0
        _, first, counts = np.unique(self._row_keys[documents], return_index=True, return_counts=True)
        several = counts > 1
        return documents[first[several]], int((counts[several] - 1).sum())

    @property
    def _row_keys(self) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = self._rows.sources * 2**44 + self._rows.positions
        return keys

    def groups(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """A number for each chosen document, equal for those of one row; None where every row is one document."""
        return self._row_keys[chosen] if self._splits else None

    def _leave_out(self, mask: Mask, reason: str) -> None:
        mask = mask & self.used
        if not mask.any():
            return
        self.used &= ~mask
        gone = np.flatnonzero(mask)
        if self._splits:  # a row is left out where none of its pieces is used
            keys = self._row_keys
            gone = gone[~np.isin(keys[gone], keys[self.used])]
        self._count(self._dropped, gone, reason)

    def _count(self, tally: Dropped, at: npt.NDArray[np.int64], reason: str) -> None:
        """Count the rows that some documents are of."""
        if self._splits:
            at = at[~earlier_equal(self._row_keys[at])]
        if len(at):
            tally.add_all(reason, len(at), self._rows.places(at[:EXAMPLES_PER_REASON]))
