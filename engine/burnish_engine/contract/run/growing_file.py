"""Reads files of lines that another process appends to while they are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

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
