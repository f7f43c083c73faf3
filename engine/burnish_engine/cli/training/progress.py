"""Show a run's events as a progress bar on a terminal, or as plain lines in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from burnish_engine.cli.terminal import duration, err, out, styled
from burnish_engine.contract.facts.task_score import METRIC_NAMES
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.run.events import (
    BestKept,
    CheckpointSaved,
    DataReady,
    EvaluationDone,
    Event,
    ExchangeMeasured,
    GeneralTextDone,
    GuardReported,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RewardsGiven,
    RolledBack,
    RunStarted,
    SampleDone,
    StepDone,
    TaskScored,
    Warned,
)
from burnish_engine.contract.run.fold import RunState, fold
from burnish_engine.contract.units import memory_size, plural
from burnish_engine.contract.wording.sentences import (
    best_sentence,
    exchange_sentence,
    memory_sentence,
    progress_sentence,
    rollback_sentence,
)
from burnish_engine.contract.wording.tables import CHECKS, FIRST_STEP, PHASES

_STOPPING = {
    "evaluating": "Stopping after this evaluation and saving",
    "saving": "Saving already; it ends by itself",
    "paused": "Stopping and saving",
}
_LINE_EVERY_S = 10.0
_ROOM_FOR_CHECKS = 130  # terminal cells that a bar with the name of a check takes
_NO_MARGIN = 1e-4  # margin below which the model is its reference: rounding decides how many pairs are preferred
_NOTE = "[yellow]note:[/] {}"


class RunProgress:
    """Show events as they come: over a bar on a terminal, else as a line every ten seconds and one per phase.

    A context manager, because the bar takes the terminal's last line.
    """

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[detail]}", markup=False),
            console=out,
            disable=not out.is_terminal,
        )
        self._task: TaskID | None = None
        self._stage: TaskID | None = None
        self._stage_line = ""
        self._line_said = float("-inf")
        self._run = RunState()

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, event: Event) -> None:
        """Show one event."""
        before, self._run = self._run, fold(self._run, event)
        if isinstance(event, PhaseChanged | StepDone):
            self._tick_off(before, event)
        if isinstance(event, StepDone):
            self._step(event)
            return
        if isinstance(event, PhaseChanged):
            self._change_phase(event)
        if isinstance(event, PhaseProgress):
            text = progress_text(event)
            if self._bar.console.width < _ROOM_FOR_CHECKS:
                text = text.partition(": ")[0]
            self._bar.update(self._bar_task(), detail=text)
        line = _line(event)
        if line:
            self._bar.console.print(line)
        if isinstance(event, RunStarted):
            self._bar.update(self._bar_task(), total=event.total_steps, completed=event.resumed_from_step or 0)

    def stopping(self) -> None:
        """Say at once how a run ends after Ctrl-C."""
        how = _STOPPING.get(self._run.phase, "Stopping after this step and saving")
        (out if out.is_terminal else err).print(f"{how}; press Ctrl-C again to stop at once without saving.")

    def memory_line(self) -> str:
        """Describe the predicted and the measured peak of memory; empty where one is unknown."""
        return memory_text(self._run)

    def note(self, line: str | Text) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line)

    def stage(self, what: str, share: float) -> None:
        """Show the progress of a stage that only reports its share (0 to 1)."""
        if self._stage is None:
            self._stage = self._bar.add_task(what, total=1.0, detail="")
            self._bar.update(self._bar_task(), visible=False)  # the run's own bar is at its end
        self._bar.update(self._stage, description=what, completed=share)
        if not out.is_terminal and what != self._stage_line:
            out.print(f"{what}...")
        self._stage_line = what

    def _bar_task(self) -> TaskID:
        if self._task is None:
            self._task = self._bar.add_task("", total=None, detail="")
        return self._task

    def _change_phase(self, event: PhaseChanged) -> None:
        phase, description = event.phase, _phase_text(event)
        self._bar.update(self._bar_task(), description=description, detail="")
        if phase == "paused":
            out.print(f"{description} (`burnish runs resume` continues)")
        elif phase != "training" and not out.is_terminal:
            out.print(f"{description}...")

    def _tick_off(self, before: RunState, event: PhaseChanged | StepDone) -> None:
        """Print the stage before the first step that this event ends, with its time."""
        if not before.beginnings or before.last_step is not None:
            return  # the first stage begins, or there was a step already
        last = before.beginnings[-1]
        done = FIRST_STEP if last.phase == "training" else _phase_text(last)
        sign = "✓ " if "utf" in out.encoding else ""
        self._bar.console.print(styled("[dim]{}{}: {}[/]", sign, done, duration(max(event.t - last.t, 0.0))))

    def _step(self, event: StepDone) -> None:
        share = preferred_text(event)
        given = self._run.rewards.last
        if given is not None:
            share = f"reward {given.reward:.3f}"
        detail = (
            f"loss {event.loss:.3f}  {share}{'  ' if share else ''}{event.tokens_per_s:,.0f} tok/s  "
            f"{memory_size(event.held_bytes)}  {duration(event.eta_s)} left"
        )
        self._bar.update(self._bar_task(), completed=event.step, detail=detail)
        now = time.monotonic()
        if not out.is_terminal and (now - self._line_said >= _LINE_EVERY_S or event.step == self._run.total_steps):
            self._line_said = now
            out.print(f"step {event.step}  {detail}")


def progress_text(event: PhaseProgress) -> str:
    """Describe how far a phase is; of checks, which one is being made."""
    check = f": {CHECKS.get(event.what, event.what)}" if event.unit == "checks" else ""
    return f"{progress_sentence(event)}{check}"


def memory_text(run: RunState) -> str:
    """Describe the predicted and the measured peak of memory; empty where one is unknown."""
    return f"{memory_sentence(run)}." if run.plan is not None and run.peak_bytes else ""


def _phase_text(event: PhaseChanged) -> str:
    """Name a phase; a part of the preparation that has a name of its own by that."""
    own = event.detail if event.phase == "preparing" else ""
    return f"Computing the {own}" if own else PHASES[event.phase]


def _line(event: Event) -> str | Text:
    match event:
        case RunStarted():
            again = f", continuing after step {event.resumed_from_step}" if event.resumed_from_step is not None else ""
            products = f", products in {event.products.upper()}" if event.products in EIGHT_BITS else ""
            how = f" on {event.device} in {event.precision}{products}: {plural(event.total_steps, 'step')}{again}"
            reason = f"\n{event.products_reason}" if event.products_reason else ""
            return styled("[bold]{}[/]{}{}", event.run, how, reason)
        case DataReady():
            dropped = f", {event.dropped_rows} not used" if event.dropped_rows else ""
            cut = f", {event.truncated_rows} truncated" if event.truncated_rows else ""
            share = event.supervised_tokens / max(event.train_tokens, 1)
            return (
                f"{plural(event.train_rows, 'row')} to learn from{dropped}{cut}, {event.validation_rows} held out; "
                f"{event.train_tokens:,} tokens, {share:.0%} of them learned; packing {event.fill:.0%} full"
            )
        case PlanMade():
            time_words = f", {duration(event.run_s)} of training" if event.run_s else ""
            free = memory_size(event.memory_free_bytes)
            return f"predicted {memory_size(event.memory_bytes)}{time_words}; {free} are free"
        case EvaluationDone():
            return evaluation_text(event)
        case SampleDone():
            return styled("[dim]step {} >[/] {}\n{}", event.step, event.prompt, event.reply)
        case CheckpointSaved():
            return styled("[dim]checkpoint {}[/]", event.path)
        case Warned():
            return styled(_NOTE, event.message)
        case _:
            return _other_line(event)


def evaluation_text(event: EvaluationDone) -> str:
    """Word an evaluation: the held-out loss, and of preferences the share preferred, the margin and the divergence."""
    what = " nats per learned token"
    if event.accuracy is not None:
        what = " of a reply" if event.kl is not None else " of a pair"
        if event.margin is not None and abs(event.margin) < _NO_MARGIN:
            what += ", no preference yet"
        else:
            what += f", {preferred_text(event)}" + (f", margin {event.margin:.3g}" if event.margin is not None else "")
        what += f", {event.kl_to_base:.2g} nats a token from the base" if event.kl_to_base else ""
    return f"held-out loss at step {event.step}: {event.loss:.4f}{what}, {event.tokens:,} tokens"


def _measured_text(event: GeneralTextDone | TaskScored) -> str:
    if isinstance(event, GeneralTextDone):
        return f"loss on general text at step {event.step}: {event.loss:.2f}"
    low, high = event.score.interval
    name = METRIC_NAMES[event.score.metric]
    return f"{name} at step {event.step}: {event.score.figures}, 95 % interval {low:.0%} to {high:.0%}"


def rewards_text(event: RewardsGiven) -> str:
    """Word a round of replies that were learned from: rewards, length, what was left out."""
    parts = ", ".join(f"{name} {value:.3f}" for name, value in event.parts.items()) if len(event.parts) > 1 else ""
    cut = f", {event.cut_replies} cut" if event.cut_replies else ""
    dropped = f", {event.dropped_groups} of {event.groups} groups teach nothing" if event.dropped_groups else ""
    entropy = f", entropy {event.entropy:.2f}" if event.entropy is not None else ""
    kl = f", KL {event.kl:.3g}" if event.kl is not None else ""
    return (
        f"step {event.step}: reward {event.reward:.3f} ± {event.spread:.3f}{f' ({parts})' if parts else ''}, "
        f"{event.reply_tokens:.0f} tokens a reply{cut}{dropped}{entropy}{kl}, {event.tokens_per_s:,.0f} tok/s written"
    )


def preferred_text(event: StepDone | EvaluationDone) -> str:
    """Word the share that is the right way around, of pairs or of labeled replies; empty where nothing is compared."""
    if event.accuracy is None:
        return ""
    return f"{event.accuracy:.0%} {'as labeled' if event.kl is not None else 'preferred'}"  # kto alone estimates a KL


def _other_line(event: Event) -> str | Text:
    match event:
        case ExchangeMeasured():
            return str(exchange_sentence(event))
        case GuardReported(verdict="training"):
            return styled("[dim]{}[/]", event.sentence)
        case GuardReported():
            return styled(_NOTE, f"{event.sentence} {event.cause} {event.remedy}")
        case RolledBack():
            return styled(_NOTE, str(rollback_sentence(event)))
        case RewardsGiven():
            return styled("[dim]{}[/]", rewards_text(event))
        case GeneralTextDone() | TaskScored():
            return _measured_text(event)
        case BestKept():
            return str(best_sentence(event))
        case _:
            return ""
