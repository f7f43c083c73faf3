"""Replays what `burnish_engine.hardware.recording` recorded of a machine's driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.hardware.gpu.nvml import NOT_SUPPORTED
from burnish_engine.hardware.host.system import SystemFacts
from burnish_engine.hardware.probe import probe


class ReplayedError(Exception):
    """The counterpart of pynvml's NVMLError in a replay.

    Args:
        value: error number of NVML.
        message: message of the error.
    """

    def __init__(self, value: int, message: str) -> None:
        super().__init__(message)
        self.value = value


class Replay:
    """Answers like the recorded NVML; calls that were not recorded are not supported.

    Args:
        calls: recorded calls: function -> arguments joined by commas -> answer.
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


def replay(recording: dict[str, Any]) -> MachineFacts:
    """Probe a recorded machine.

    Args:
        recording: recording that `record` made.
    """
    names = recording["processes"]
    return probe(
        Replay(recording["nvml"]),
        system=SystemFacts.model_validate(recording["system"]),
        name_of=lambda pid: str(names.get(str(pid), "")),
    )


def load(path: Path) -> dict[str, Any]:
    """Load a recording from its file."""
    recording: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return recording


def _revive(answer: Any) -> Any:
    if isinstance(answer, dict):
        return SimpleNamespace(**{"usedGpuMemory": None, **answer})
    if isinstance(answer, list):
        return [_revive(item) for item in answer]
    return answer
