"""Terminal output of all commands: the two streams, errors, styled text.

All output of a command goes through `out`, `err` or `print_json`. Text is printed literally: brackets are no markup,
and control characters are spelled out. Colors come from `styled`.
"""

from __future__ import annotations

import errno
import io
import logging
import math
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.contract.plain_text import one_line, printable, printable_json, typed

_GONE = {errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF} | ({errno.EINVAL} if os.name == "nt" else set())
"""Errors of writing to a terminal or a pipe that nobody reads any more."""


_LONG_WORD = re.compile(r"(\S{150})\S{100,}(\S{50})")  # a path of thousands of letters would hide what is wrong


class _Stream(io.TextIOBase):
    """The process's standard output or error; output after its reader is gone is dropped.

    A closed terminal, or a pipe into `head`, is no failure of the command: a run continues to its last save.

    Args:
        name: stream, "stdout" or "stderr"; looked up in `sys` at each use.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def _stream(self) -> TextIO | None:
        stream = getattr(sys, self._name)
        return getattr(stream, "rich_proxied_file", stream)  # rich stands in for it while a bar is shown

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._drop(error)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._drop(error)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation("there is no stream")
        return self._stream.fileno()

    def _drop(self, error: OSError) -> None:
        """Discard all further output, and what is buffered."""
        if error.errno not in _GONE:
            raise error
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


class Terminal(Console):
    """Console that prints text literally: no markup, no emoji codes, no control characters.

    Args:
        stderr: whether to print on standard error.
        soft_wrap: whether the terminal breaks long lines.
        options: further arguments of rich's `Console`.
    """

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = True, **options: Any) -> None:
        file: Any = options.pop("file", None) or _Stream("stderr" if stderr else "stdout")
        super().__init__(file=file, markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap, **options)
        if "width" not in options:
            self.width = None  # type: ignore[assignment]  # rich would keep what COLUMNS was at the start

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render into segments; those with text are made printable."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make text from a string; rich would drop some control characters, so they are spelled out first."""
        return super().render_str(printable(text), **options)

    def note(self, text: str) -> None:
        """Print a remark that a person should see."""
        self.print(styled("[yellow]note:[/] {}", text))

    def problem(self, text: str) -> None:
        """Print a problem that prevents the work."""
        self.print(styled("[red]problem:[/] {}", text))

    def dim(self, text: str) -> None:
        """Print a less important remark."""
        self.print(Text(text, style="dim"))


def styled(template: str, *values: object) -> Text:
    """Make text with colors.

    Args:
        template: rich's markup, with {} where values go; always a literal in the source, never data.
        values: values for the template, printed literally.
    """
    return Text.from_markup(template.format(*(escape(printable(str(value))) for value in values)), emoji=False)


out = Terminal()
err = Terminal(stderr=True)


def say_error(paragraph: str) -> None:
    """Print one paragraph on standard error."""
    shortened = _LONG_WORD.sub(r"\1...\2", one_line(paragraph))
    err.print(styled("[bold red]burnish:[/] {}", shortened))


def show_log() -> None:
    """Print on standard error what our own modules log: long work that nobody requested by name."""
    logger = logging.getLogger("burnish_engine")
    if not any(isinstance(handler, _OnTerminal) for handler in logger.handlers):
        logger.addHandler(_OnTerminal())
        logger.setLevel(logging.INFO)
        logger.propagate = False  # the root's handler would say it again


class _OnTerminal(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        err.print(record.getMessage())


def typed_run(paths: RunPaths) -> str:
    """Return how a command names a run: by its name, or by its folder where that lies elsewhere."""
    here = paths.root.parent == runs_dir().absolute()
    return typed(paths.root.name if here else paths.root)


def print_json(text: str) -> None:
    """Print one JSON document on standard output, nothing else."""
    print_raw(printable_json(text.rstrip("\n")) + "\n")


def print_raw(text: str) -> None:
    """Print text on standard output literally, without breaking lines; control characters are spelled out.

    Args:
        text: whole lines, or a piece of a reply.
    """
    out.file.write(printable(text))
    out.file.flush()


def duration(seconds: float) -> str:
    """Format seconds for people; "unknown" where they are not finite or negative."""
    if not math.isfinite(seconds) or seconds < 0:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
