"""Selects the documents to use: leaves out unusable ones, duplicates and leaks, and counts each by its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.problems import EXAMPLES_PER_REASON, RowTally
from burnish_engine.data.pipeline.row_pipeline import SPLITTING
from burnish_engine.data.rows.near_duplicates import earliest_near_duplicates
from burnish_engine.data.tokens.documents import ShardedDocuments
from burnish_engine.data.tokens.mix import repeats_earlier

NOTHING_LEFT = "nothing to learn after truncation"
"""Beginning of the reason for rows whose supervised tokens all lie behind the cut."""
SAME = "the same as an earlier row"
NEARLY_SAME = "nearly the same as an earlier row"
HELD_OUT_TOO = "held out as well"

Mask = npt.NDArray[np.bool_]


@dataclass
class DuplicateRows:
    """Tallies of equal and nearly equal rows among the usable documents.

    Attributes:
        same: rows that equal an earlier one.
        near: rows that nearly equal an earlier one.
        searched: whether the search for near-duplicates was completed.
        leaks: held-out rows that are trained on too.
        near_leaks: held-out rows that nearly equal one that is trained on.
    """

    same: RowTally = field(default_factory=RowTally)
    near: RowTally = field(default_factory=RowTally)
    searched: bool = True
    leaks: RowTally = field(default_factory=RowTally)
    near_leaks: RowTally = field(default_factory=RowTally)


class Selection:
    """Narrows all documents down to those that are used.

    Args:
        documents: all documents.
        data: the recipe's data section.
        dropped: tally that left-out rows are added to.
    """

    def __init__(self, documents: ShardedDocuments, data: DataSection, dropped: RowTally) -> None:
        self._documents, self._data, self._dropped = documents, data, dropped
        self._splits = data.overlong in SPLITTING
        self.duplicates = DuplicateRows()
        self.used: Mask = np.ones(len(documents), dtype=np.bool_)
        self._first_like: npt.NDArray[np.int64] = np.arange(len(documents), dtype=np.int64)

    def leave_out_unusable(self) -> None:
        """Leave out documents that are too long or have no supervised token."""
        data, documents = self._data, self._documents
        nothing = documents.whole_supervised_tokens == 0
        overlong = (documents.whole_lengths > documents.longest) & (data.overlong == "drop")
        behind = (documents.supervised_tokens == 0) & ~nothing
        self._leave_out(overlong, f"longer than {data.max_length} tokens")
        self._leave_out(nothing, "nothing to learn")
        self._leave_out(behind, f"{NOTHING_LEFT} to {data.max_length} tokens")

    def find_duplicates(self, held_out_from: int, most_bytes: int) -> None:
        """Find equal and nearly equal documents, and leave out those that the recipe does not want.

        Args:
            held_out_from: number of the first document of the validation files; training and validation files are
                searched for duplicates separately.
            most_bytes: memory limit of the search for near-duplicates, bytes; it does not hold where the recipe drops
                them.
        """
        parts = (np.arange(len(self.used)) >= held_out_from).astype(np.int64)
        known = np.flatnonzero(self.used)
        same = np.zeros(len(self.used), dtype=np.bool_)
        same[known] = repeats_earlier(self._documents.digests[known] * 2 + parts[known])
        self._count(self.duplicates.same, np.flatnonzero(same), SAME)
        considered = self.used & ~same
        dropping = self._data.duplicates == "drop_near"
        if dropping or len(self.used) * 64 <= most_bytes:
            first, self.duplicates.searched = earliest_near_duplicates(
                self._documents.bands, self._documents.ids, considered, thorough=dropping
            )
            near = considered & (first != np.arange(len(first))) & (parts[first] == parts)
            held_out = considered & (parts == 1)
            if held_out.any():  # a held-out row's earliest near-duplicate may be a training row
                own, whole = earliest_near_duplicates(
                    self._documents.bands, self._documents.ids, held_out, thorough=dropping
                )
                near |= held_out & (own != np.arange(len(own)))
                self.duplicates.searched &= whole
            self._count(self.duplicates.near, np.flatnonzero(near), NEARLY_SAME)
            self._first_like = first
        else:
            self.duplicates.searched = False
            near = same & False
        if self._data.duplicates != "keep":
            self._leave_out(same, SAME)
        if dropping:
            self._leave_out(near, NEARLY_SAME)

    def without_leaks(self, train: npt.NDArray[np.int64], held_out: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Tally held-out documents that are among the training documents, and drop those where the recipe says so.

        Args:
            train: numbers of the training documents.
            held_out: numbers of the held-out documents.

        Returns:
            Numbers of the documents to train on: all of `train`, or fewer where the recipe drops leaks.
        """
        digests, first = self._documents.digests, self._first_like
        leaked = np.isin(digests[held_out], digests[train])
        near = np.isin(first[held_out], first[train]) & ~leaked
        self._count(self.duplicates.leaks, held_out[leaked], HELD_OUT_TOO)
        self._count(self.duplicates.near_leaks, held_out[near], HELD_OUT_TOO)
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
        """Whether the recipe keeps training rows that are held out as well."""
        return self._data.leaks == "keep"

    @property
    def used_rows(self) -> int:
        """Number of rows with at least one used document."""
        return self.rows_of(np.flatnonzero(self.used))

    def rows_of(self, documents: npt.NDArray[np.int64]) -> int:
        """Count the rows that some documents belong to.

        Args:
            documents: [k] numbers of documents; a number may occur more than once.
        """
        return len(np.unique(self._row_keys[documents] if self._splits else documents))

    def continued(self, documents: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
        """Find the rows that became several documents.

        Args:
            documents: [k] numbers of documents, each once.

        Returns:
            The first document of each such row, and the number of documents beyond those.
        """
        if not self._splits:
            return documents[:0], 0
        _, first, counts = np.unique(self._row_keys[documents], return_index=True, return_counts=True)
        several = counts > 1
        return documents[first[several]], int((counts[several] - 1).sum())

    @property
    def _row_keys(self) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = self._documents.sources * 2**44 + self._documents.positions
        return keys

    def groups(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return [k] a key for each document, equal within a row; None where every row is one document."""
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

    def _count(self, tally: RowTally, at: npt.NDArray[np.int64], reason: str) -> None:
        """Tally the rows that some documents belong to."""
        if self._splits:
            at = at[~repeats_earlier(self._row_keys[at])]
        if len(at):
            tally.add_all(reason, len(at), self._documents.row_refs(at[:EXAMPLES_PER_REASON]))
