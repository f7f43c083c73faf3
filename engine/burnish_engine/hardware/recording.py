"""Record what NVML answers on a real machine, and replay it anywhere. `python -m burnish_engine.hardware.recording`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from burnish_engine.contract.machine import MachineFacts
from burnish_engine.hardware.nvml import NOT_SUPPORTED
from burnish_engine.hardware.probe import probe
from burnish_engine.hardware.system import SystemFacts, read_system

_HANDLE = "nvmlDeviceGetHandleByIndex"
_UUID = "nvmlDeviceGetUUID"
_STRUCT_FIELDS = ("total", "free", "used", "busId", "pid", "usedGpuMemory")
"""Fields of NVML's structures that the probe reads; nothing else is written down."""


class ReplayedError(Exception):
    """Stands for pynvml's NVMLError in a replay.

    Args:
        value: NVML's error number.
        message: Its words.
    """

    def __init__(self, value: int, message: str) -> None:
        super().__init__(message)
        self.value = value


class Recorder:
    """Hands calls on to NVML and writes answers and errors down.

    Args:
        nvml: pynvml, or an object with its functions.
    """

    def __init__(self, nvml: Any) -> None:
        self.NVMLError = nvml.NVMLError
        self.calls: dict[str, dict[str, Any]] = {}
        self._nvml = nvml
        self._handles: list[tuple[Any, int]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._nvml, name)

        def call(*arguments: Any) -> Any:
            answers = self.calls.setdefault(name, {})
            key = ",".join(str(self._plain(argument)) for argument in arguments)
            try:
                answer = function(*arguments)
            except self.NVMLError as error:
                answers[key] = {"error": getattr(error, "value", NOT_SUPPORTED), "message": str(error)}
                raise
            if name == _HANDLE:
                self._handles.append((answer, arguments[0]))
            answers[key] = f"GPU-{key}" if name == _UUID else self._plain(answer)
            return answer

        return call

    def _plain(self, value: Any) -> Any:
        """A value that JSON holds. Handles become the index they were asked by."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        for handle, index in self._handles:
            if handle is value:
                return index
        return {name: self._plain(getattr(value, name)) for name in _STRUCT_FIELDS if hasattr(value, name)}


class Replay:
    """Answers like the NVML that was recorded. What was not recorded is not supported.

    Args:
        calls: A recording's calls: function -> arguments joined by commas -> answer.
    """

    NVMLError = ReplayedError

    def __init__(self, calls: dict[str, dict[str, Any]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            missing = {"error": NOT_SUPPORTED, "message": "Not Supported"}
            answer = self._calls.get(name, {}).get(",".join(map(str, arguments)), missing)
            if isinstance(answer, dict) and "error" in answer:
                raise ReplayedError(answer["error"], answer["message"])
            return _revive(answer)

        return call


def record(nvml: Any, system: SystemFacts | None = None) -> dict[str, Any]:
    """Everything the probe asks, with the answers: no host or user names, no serial numbers, no names of processes.

    Args:
        nvml: pynvml, or an object with its functions.
        system: Facts beside the GPUs; read when not given.
    """
    recorder = Recorder(nvml)
    system = system or read_system()
    probe(recorder, system=system, name_of=lambda _: "")
    return {"constructed": False, "note": "", "system": system.model_dump(), "processes": {}, "nvml": recorder.calls}


def replay(recording: dict[str, Any]) -> MachineFacts:
    """The facts that the probe finds on a recorded machine.

    Args:
        recording: As `record` makes it.
    """
    names = recording["processes"]
    return probe(
        Replay(recording["nvml"]),
        system=SystemFacts.model_validate(recording["system"]),
        name_of=lambda pid: str(names.get(str(pid), "")),
    )


def load(path: Path) -> dict[str, Any]:
    """A recording from its file."""
    recording: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return recording


def _revive(answer: Any) -> Any:
    if isinstance(answer, dict):
        return SimpleNamespace(**{"usedGpuMemory": None, **answer})
    if isinstance(answer, list):
        return [_revive(item) for item in answer]
    return answer


def main() -> None:
    """Print this machine's recording."""
    import pynvml

    sys.stdout.write(json.dumps(record(pynvml), indent=1) + "\n")


if __name__ == "__main__":
    main()
