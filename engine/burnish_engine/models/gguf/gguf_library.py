"""llama.cpp's library, loaded at first use, with its log caught: nothing is printed.

Together with gguf_runtime the only place that touches `llama_cpp`. llama.cpp has one log callback per process, so the
warnings of all models land in one list.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError, UsageError

_MAGIC = b"GGUF"
_MXFP4 = 39  # GGML_TYPE_MXFP4, ggml.h
_WARNING, _ERROR, _CONTINUED = 3, 4, 5  # ggml_log_level, ggml.h


class _Log:
    """Collects llama.cpp's log: warnings and errors are kept, lines of any level go to a listener if there is one."""

    def __init__(self) -> None:
        self.kept: deque[str] = deque(maxlen=200)
        self.listener: Callable[[str], None] | None = None
        self.callback: Any = None
        self._level = 0

    def __call__(self, level: int, text: bytes, _user: object) -> None:
        self._level = self._level if level == _CONTINUED else level
        line = text.decode("utf-8", "replace")
        if self.listener is not None:
            self.listener(line)
        if self._level in {_WARNING, _ERROR} and line.strip(" .\n"):
            self.kept.append(line.strip())


_log = _Log()


@functools.cache
def library() -> Any:
    """Return the binding, with the log callback installed.

    Raises:
        SetupError: The binding cannot be loaded.
    """
    # Read by libgomp when it is loaded. Its default spins so long at every barrier that on a machine with other work to
    # do two threads become 5 to 30 times slower than one (measured: 46 instead of 280 tokens/s); 2,000 turns keep half
    # of the speed beside as many other programs as cores, and cost next to nothing on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed assertion would start a debugger and print its pages
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise SetupError(
            f"llama.cpp's Python binding could not be loaded: {error}.", "Reinstall Burnish (package llama-cpp-python)."
        ) from error
    _log.callback = llama_cpp.llama_log_callback(_log)  # C keeps only the address: the object must outlive the library
    llama_cpp.llama_log_set(_log.callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


def take_warnings() -> list[str]:
    """Return llama.cpp's warnings since the last call, oldest first."""
    lines = list(_log.kept)
    _log.kept.clear()
    return lines


def quantize_file(
    source: Path,
    target: Path,
    ftype: int,
    threads: int,
    on_line: Callable[[str], None],
    importance: Mapping[str, Any] | None = None,
    kept: Collection[str] = (),
) -> str:
    """Quantize an unquantized GGUF. Blocks, cannot be canceled, and may abort the process: run it in a worker.

    Args:
        source: file in F16, BF16 or F32.
        target: file to write.
        ftype: number of `llama_ftype` in llama.h.
        threads: number of CPU threads; 0 is one per core.
        on_line: function called with each piece of llama.cpp's log.
        importance: array per weight name with the mean square of each of its input columns, fp32; of a stack, expert
            by expert.
        kept: names of tensors in MXFP4, which stay so.

    Returns:
        An empty string, or the reason of a failure.
    """
    lib = library()
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.nthread = ftype, threads
    arrays = {name: array.astype("float32", copy=True) for name, array in (importance or {}).items()}
    if arrays:
        table = (lib.llama_model_imatrix_data * (len(arrays) + 1))()  # an entry without a name ends the list
        for entry, (name, array) in zip(table, arrays.items(), strict=False):
            entry.name, entry.size = name.encode("utf-8"), array.size
            entry.data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        params.imatrix = table
    if kept:
        overrides = (lib.llama_model_tensor_override * (len(kept) + 1))()  # an entry without a pattern ends the list
        for override, name in zip(overrides, kept, strict=False):
            override.pattern, override.type = f"^{re.escape(name)}$".encode(), _MXFP4
        params.tt_overrides = overrides
    take_warnings()
    _log.listener = on_line
    try:
        failed = lib.llama_model_quantize(
            str(source).encode("utf-8"), str(target).encode("utf-8"), ctypes.byref(params)
        )
    finally:
        _log.listener = None
    return last_warnings() if failed else ""


def last_warnings() -> str:
    """Return llama.cpp's newest complaints, as the reason of a failure."""
    return "; ".join(take_warnings()[-3:]).rstrip(".") or "it gave no reason"


def copied_text(read: Callable[[Any, int], int]) -> str:
    """Return a string that llama.cpp copies into a buffer whose size must be guessed first."""
    room = 256
    while True:
        buffer = ctypes.create_string_buffer(room)
        size = read(buffer, room)
        if size < room:
            return buffer.raw[: max(size, 0)].decode("utf-8", "replace")
        room = size + 1


def check_magic(path: Path) -> None:
    """Check that the file can be read and is a GGUF.

    Raises:
        UsageError: The file cannot be read or is not a GGUF.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UsageError(f"{path} is a folder, a pipe or a device.", "Give a .gguf file.")
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check the path.") from error
    if start != _MAGIC:
        raise UsageError(f"{path} is not a GGUF file (it starts with {start!r}).", "Give a .gguf file.")
