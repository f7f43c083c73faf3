"""Collects the problems of data files, so that one bad file does not stop the inspection of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from burnish_engine.contract.errors import BurnishError, DataError
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.data.files.discover import DatasetPart


class FileProblems:
    """The files that cannot be trained on, each with the reason.

    Args:
        go_on: whether problems are collected; else each is raised.

    Attributes:
        files: files with a problem, as they were found.
    """

    def __init__(self, *, go_on: bool = False) -> None:
        self._go_on = go_on
        self._first: BurnishError | None = None
        self.files: list[FileStatus] = []

    @contextmanager
    def of(self, name: str, entry: int, kind: type[BurnishError] = DataError) -> Iterator[None]:
        """Collect the error that is raised within the context, if it is of a kind that concerns one file.

        Args:
            name: name of the file.
            entry: index of the recipe's entry that the file belongs to, from 0.
            kind: class of the errors to collect.
        """
        try:
            yield
        except kind as error:
            self.add(name, entry, error)

    def add(self, name: str, entry: int, error: BurnishError) -> None:
        """Collect an error of a file, or raise it where problems are not collected."""
        if not self._go_on:
            raise error
        self._first = self._first or error
        self.files.append(FileStatus(file=name, entry=entry, problem=error.what, remedy=error.remedy))

    def without(self, parts: list[DatasetPart]) -> list[DatasetPart]:
        """Return the parts that have no problem so far."""
        bad = {file.file for file in self.files}
        return [part for part in parts if part.name not in bad]

    def raise_first(self) -> None:
        """Raise the first error that was collected, if there is one: no file is left."""
        if self._first is not None:
            raise self._first
