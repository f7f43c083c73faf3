"""Reads files of lines that another process appends to while they are read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from burnish_engine.contract.files import refuse_special

Folded = TypeVar("Folded")
_PIECE_BYTES = 2**20


@dataclass
class GrowingFile:
    """Reads a growing file piece by piece, as whole lines.

    Attributes:
        path: path of the file; it need not exist yet.
        began_anew: whether the last piece is the first one of another file, which took the path of the one before.
    """

    path: Path
    began_anew: bool = False
    _offset: int = 0
    _rest: bytes = b""
    _file_id: tuple[int, int] = (0, 0)

    def read(self) -> list[bytes] | None:
        """Read the next piece of the file.

        Returns:
            Lines that the piece completes, without line feeds; None where there is nothing new, or the file is not
            there yet, gone, or held for a moment.
        """
        self.began_anew = False
        try:
            refuse_special(self.path)
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file_id = (status.st_dev, status.st_ino)
                if status.st_size < self._offset or (self._offset and file_id != self._file_id):
                    self.began_anew, self._offset, self._rest = True, 0, b""
                self._file_id = file_id
                file.seek(self._offset)
                piece = file.read(_PIECE_BYTES)
        except OSError:
            return None
        self._offset += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return lines if piece else None


class FoldedFile(ABC, Generic[Folded]):
    """Reads a growing file piece by piece and folds its whole lines into a state.

    Where the writer replaces the file, the state begins anew from the new one.

    Args:
        path: path of the file; it need not exist yet.

    Attributes:
        state: state folded from the lines read so far.
        skipped: number of lines that this version does not know.
    """

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self.state: Folded = self._empty()
        self.skipped = 0

    @abstractmethod
    def _empty(self) -> Folded:
        """Return the state before the first line."""

    @abstractmethod
    def _add(self, state: Folded, line: bytes) -> Folded:
        """Return the state after a line.

        Raises:
            pydantic.ValidationError: This version does not know the line.
        """

    def read(self) -> bool:
        """Read and fold the next piece of the file.

        Returns:
            Whether anything new was read.
        """
        lines = self._file.read()
        if self._file.began_anew:
            self.state = self._empty()
        for line in lines or ():
            try:
                self.state = self._add(self.state, line)
            except ValidationError:
                self.skipped += 1
        return lines is not None
