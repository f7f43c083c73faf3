"""Process that quantizes one file.

`python -m burnish_engine.export.quantize.quantize_worker SOURCE TARGET FTYPE THREADS [IMPORTANCE [HESSIANS]]`

llama.cpp's quantizer blocks, cannot be canceled and aborts the process on some faults, so it has a process of its own.
With Hessians (`hessian.py`), GPTQ chooses new codes afterwards. Standard output carries JSON lines: {"tensor": 12,
"of": 272}, at the end {"done": true} or {"error": "..."}.
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path

from burnish_engine.channel.parent import end_with_parent

_TENSOR = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]")
_REFINING = 3  # duration of GPTQ relative to llama.cpp's part


def main(arguments: list[str]) -> int:
    """Quantize the file; return the process's exit status."""
    end_with_parent()
    source, target, ftype, threads, *matrix = arguments
    origin, *beside = (Path(path).absolute() for path in (source, *matrix))
    # llama.cpp opens its output by Windows' 8-bit code page, and a folder's name may hold any letter.
    written = Path(target).absolute()
    os.chdir(written.parent)
    written = Path(written.name)
    if int(threads):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", threads)  # read when numpy is loaded
    from burnish_engine.advise.facts.gguf_size import STORED_MXFP4
    from burnish_engine.export.quantize.importance_file import read_importance
    from burnish_engine.models.checkpoint.gguf_file.header import read_header
    from burnish_engine.models.gguf.gguf_library import quantize_file

    importance = read_importance(beside[0]) if beside else None
    hessians = beside[1] if len(beside) > 1 else None
    whole = 1 if hessians is None else 1 + _REFINING
    report = partial(_report, whole)
    kept = [tensor.name for tensor in read_header(origin).tensors if tensor.type == STORED_MXFP4]
    error = quantize_file(origin, written, int(ftype), int(threads), report, importance, kept)
    if hessians is not None and not error:
        from burnish_engine.export.quantize.hessian import refine_file

        refine_file(origin, written, hessians, partial(_report_refined, whole))
        _report_refined(whole, 1, 1)
    _say({"error": error} if error else {"done": True})
    return 1 if error else 0


def _report(whole: int, line: str) -> None:
    match = _TENSOR.match(line)
    if match:
        _say({"tensor": int(match.group(1)), "of": whole * int(match.group(2))})


def _report_refined(whole: int, done: int, of: int) -> None:
    _say({"tensor": of + _REFINING * done, "of": whole * of})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
