"""The process that quantizes one file: `python -m burnish_engine.export.quantize_worker SOURCE TARGET FTYPE THREADS`.

llama.cpp's quantizer blocks, cannot be cancelled and aborts the process on some faults, so it has one of its own.
Standard output carries JSON lines: {"tensor": 12, "of": 272}, at the end {"done": true} or {"error": "..."}. The worker
ends when its standard input closes, so that it never outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from pathlib import Path

_TENSOR = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]")


def main(arguments: list[str]) -> int:
    """Quantize; the process's exit status."""
    source, target, ftype, threads = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from burnish_engine.models.gguf_library import quantize_file

    error = quantize_file(Path(source), Path(target), int(ftype), int(threads), _report)
    _say({"error": error} if error else {"done": True})
    return 1 if error else 0


def _report(line: str) -> None:
    match = _TENSOR.match(line)
    if match:
        _say({"tensor": int(match.group(1)), "of": int(match.group(2))})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock this thread would hold while the interpreter shuts down.
    while os.read(0, 64):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
