"""Send commands to a run: clients append to `control.jsonl` under a lock, the engine reads between steps."""

from __future__ import annotations

import time
from pathlib import Path

from filelock import FileLock
from pydantic import ValidationError

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.commands import Command, CommandName


def send(paths: RunPaths, name: CommandName) -> Command:
    """Append a command and return it; its id comes back in the acknowledging event."""
    command = Command(name=name, t=time.time())
    line = command.model_dump_json().encode() + b"\n"
    with FileLock(str(paths.control) + ".lock", timeout=10), paths.control.open("ab", buffering=0) as file:
        file.write(line)
    return command


class ControlReader:
    """Read commands that were appended after this reader was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def poll(self) -> list[Command]:
        """Return new whole commands since the last call, skipping lines that are no command."""
        if not self._path.exists() or self._path.stat().st_size <= self._offset:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        commands = []
        for line in data[:whole].splitlines():
            try:
                commands.append(Command.model_validate_json(line))
            except ValidationError:
                continue
        return commands
