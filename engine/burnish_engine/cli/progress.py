"""A run's events as a progress bar on a terminal, or as plain lines in a log."""

from __future__ import annotations

from types import TracebackType

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from burnish_engine.cli.terminal import duration, out, size
from burnish_engine.contract.events import (
    CheckpointSaved,
    DataReady,
    EvaluationDone,
    Event,
    PhaseChanged,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)


class RunProgress:
    """Shows events as they come. A context manager, because the bar takes the terminal's last line."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[detail]}"),
            console=out,
            disable=not out.is_terminal,
        )
        self._task: TaskID | None = None
        self._stage: TaskID | None = None
        self._lines_every = 1

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, StepDone):
            self._step(event)
            return
        line = _line(event)
        if line:
            self._bar.console.print(line)
        if isinstance(event, RunStarted):
            self._lines_every = max(1, event.total_steps // 20)
            self._task = self._bar.add_task("training", total=event.total_steps, detail="")
            self._bar.update(self._task, completed=event.resumed_from_step or 0)

    def note(self, line: str) -> None:
        """A line above the bar."""
        self._bar.console.print(line)

    def stage(self, what: str, share: float) -> None:
        """How far a stage is that only tells its share (0 to 1)."""
        if self._stage is None:
            self._stage = self._bar.add_task(what, total=1.0, detail="")
        self._bar.update(self._stage, description=what, completed=share)

    def _step(self, event: StepDone) -> None:
        detail = (
            f"loss {event.loss:.3f}  {event.tokens_per_s:,.0f} tok/s  "
            f"{size(event.memory_bytes)}  {duration(event.eta_s)} left"
        )
        if self._task is not None:
            self._bar.update(self._task, completed=event.step, detail=detail)
        if not out.is_terminal and event.step % self._lines_every == 0:
            out.print(f"step {event.step}  {detail}")


def _line(event: Event) -> str:
    match event:
        case RunStarted():
            again = f", going on after step {event.resumed_from_step}" if event.resumed_from_step is not None else ""
            return (
                f"[bold]{escape(event.run)}[/] on {event.device} in {event.precision}: {event.total_steps} steps{again}"
            )
        case DataReady():
            dropped = f", {event.dropped_rows} not used" if event.dropped_rows else ""
            cut = f", {event.truncated_rows} truncated" if event.truncated_rows else ""
            share = event.supervised_tokens / max(event.train_tokens, 1)
            return (
                f"{event.train_rows} rows to learn from{dropped}{cut}, {event.validation_rows} held out; "
                f"{event.train_tokens:,} tokens, {share:.0%} of them learned; packing {event.fill:.0%} full"
            )
        case EvaluationDone():
            return f"held-out loss at step {event.step}: {event.loss:.4f} nats per learned token"
        case SampleDone():
            return f"[dim]step {event.step} >[/] {escape(event.prompt)}\n{escape(event.reply)}"
        case CheckpointSaved():
            return f"[dim]checkpoint {event.path}[/]"
        case Warned():
            return f"[yellow]note:[/] {escape(event.message)}"
        case PhaseChanged(phase="paused"):
            return "paused (`burnish runs resume` goes on)"
        case _:
            return ""
