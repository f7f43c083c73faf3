"""Records NVML's answers on a real machine; `tests/support/machines/replay.py` replays them.

Run it with `python -m burnish_engine.hardware.recording`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from burnish_engine.hardware.gpu.nvml import NOT_SUPPORTED
from burnish_engine.hardware.host.system import SystemFacts, read_system
from burnish_engine.hardware.probe import probe

_HANDLE = "nvmlDeviceGetHandleByIndex"
_UUID = "nvmlDeviceGetUUID"
_STRUCT_FIELDS = ("total", "free", "used", "busId", "pid", "usedGpuMemory")
"""Fields of NVML's structures that the probe reads; nothing else is recorded."""


class NvmlRecorder:
    """Passes calls on to NVML and records answers and errors.

    Args:
        nvml: pynvml module, or an object with its functions.
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
        """Convert a value to one that JSON holds; a handle becomes the index that it was asked by."""
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


def record(nvml: Any, system: SystemFacts | None = None) -> dict[str, Any]:
    """Record all that the probe asks: no host or user names, no serial numbers, no names of processes.

    Args:
        nvml: pynvml module, or an object with its functions.
        system: facts beside the GPUs; read when not given.
    """
    recorder = NvmlRecorder(nvml)
    system = system or read_system()
    probe(recorder, system=system, name_of=lambda _: "")
    return {"constructed": False, "note": "", "system": system.model_dump(), "processes": {}, "nvml": recorder.calls}


def main() -> None:
    """Print this machine's recording."""
    import pynvml

    sys.stdout.write(json.dumps(record(pynvml), indent=1) + "\n")


if __name__ == "__main__":
    main()
