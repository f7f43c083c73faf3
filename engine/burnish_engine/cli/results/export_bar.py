"""Progress bar of an export, which also asks the work to stop."""

from __future__ import annotations

import threading

from rich.progress import BarColumn, Progress, TextColumn

from burnish_engine.cli.stop_signals import set_on_stop
from burnish_engine.cli.terminal import out
from burnish_engine.runs.jobs.export_job import ExportReporter


class ExportBar:
    """Show (what, share) on a terminal and to the reporter; Ctrl-C, or the reporter's cancel, asks the work to stop."""

    def __init__(self, *, quiet: bool, reporter: ExportReporter | None = None) -> None:
        self._reporter = reporter
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            console=out,
            disable=quiet or not out.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._quiet = quiet
        self._stage = ""
        self._interrupted = threading.Event()
        self._signals = set_on_stop(self._interrupted)

    def __enter__(self) -> ExportBar:
        self._signals.__enter__()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__(None, None, None)
        self.stop()

    def stop(self) -> None:
        """Remove the bar from the screen."""
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if not self._quiet:
            out.print(text)

    def show(self, what: str, share: float) -> None:
        """Show the progress: the `progress` callback."""
        self._bar.update(self._task, description=what, completed=share)
        if what != self._stage and share < 1.0 and not self._quiet and not out.is_terminal:
            out.print(f"{what}...")
        self._stage = what
        if self._reporter:
            self._reporter.progress(what, share)

    def canceled(self) -> bool:
        """Whether to stop: the `canceled` callback."""
        return self._interrupted.is_set() or (self._reporter is not None and self._reporter.canceled())
