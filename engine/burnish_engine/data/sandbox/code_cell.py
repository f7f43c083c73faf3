"""The process that runs one program that nobody has read: `python -m burnish_engine.data.sandbox.code_cell FOLDER`.

Its standard input is JSON: {program, memory_bytes, seconds, output_bytes, isolated, refused, done}. When the program
has run to its end, the text `done` is written behind its output, which a program that ends early does not have. Where
the system does not let the process be set apart, it writes the text `refused` and the reason, and runs nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from burnish_engine.data.sandbox.confine import limit_memory, limit_output, limit_processes, limit_time_for_good


def main() -> None:
    """Run the program."""
    wanted: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    _confine(wanted)
    # dont_inherit: the program must not be compiled with this file's own `from __future__`
    code = compile(wanted["program"], "reply.py", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})  # noqa: S102  what this is for
    sys.stdout.flush()
    os.write(1, wanted["done"].encode())


def _confine(wanted: dict[str, Any]) -> None:
    """Set this process apart and limit it; end it where that cannot be done. The program does not learn `refused`."""
    refused = wanted.pop("refused")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    if wanted["isolated"]:
        try:
            _isolate(Path(sys.argv[1]))
        except (OSError, ImportError, AttributeError, KeyError) as error:
            os.write(1, f"{refused}{error}".encode())
            os._exit(1)
    os.dup2(nothing, 2)
    os.environ.clear()
    limit_output(wanted["output_bytes"])
    limit_processes()
    limit_memory(wanted["memory_bytes"])
    limit_time_for_good(wanted["seconds"])


def _isolate(folder: Path) -> None:
    if sys.platform == "win32":
        raise OSError("Windows has no namespaces")
    from burnish_engine.data.sandbox.namespaces import enter_namespaces

    enter_namespaces(folder)


if __name__ == "__main__":
    main()
