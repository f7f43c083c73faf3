"""`burnish runs`: lists runs, commands them, and resumes them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, out, print_json, styled, typed_run
from burnish_engine.cli.training import compare
from burnish_engine.cli.training.card import card_lines
from burnish_engine.cli.training.progress import evaluation_text, memory_text
from burnish_engine.cli.training.train import help_leader, is_other_rank, train_run
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.files import must_be_new, write_atomic
from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.contract.plain_text import one_line
from burnish_engine.contract.recipe.recipe import MOST_GPUS
from burnish_engine.contract.run.card import RunCard
from burnish_engine.contract.run.commands import CommandName
from burnish_engine.contract.run.events import CommandDone, EvaluationDone, RolledBack, Warned
from burnish_engine.contract.run.fold import RunState, StepHistory, fold_all
from burnish_engine.contract.run.hardware_log import read_history
from burnish_engine.contract.run.notes import read_notes, split_tags, write_notes
from burnish_engine.contract.run.process_end import death_text
from burnish_engine.contract.units import energy_size
from burnish_engine.contract.wording.sentences import rollback_sentence
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.jobs import actions, lease, trash
from burnish_engine.runs.store import StoredRun, list_runs, open_run, read_recipe, summarize

app = typer.Typer(help="List, stop, pause, resume and compare runs.", no_args_is_help=True)

RunArgument = Annotated[str, typer.Argument(help='Name or folder of the run; "last" is the newest.')]
_ACK_TIMEOUT_S = 60.0
_CAN_GO_ON = ("interrupted", "suspended", "stopped", "paused")


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List runs, newest first."""
    found = list_runs()
    if json:
        import json as json_module

        print_json(json_module.dumps([_as_dict(summary) for summary in found], indent=1))
        return
    if not found:
        out.print(f"There are no runs in {runs_dir()} yet. `burnish train recipe.toml` makes one.")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("run", "standing", "step", "loss", "held-out", "reward", "created"):
        table.add_column(title)
    for summary in found:
        state = summary.state
        table.add_row(
            state.run,
            summary.status,
            f"{state.step}/{state.total_steps}" if state.total_steps else "",
            "" if state.loss is None else f"{state.loss:.3f}",
            "" if state.evaluation_loss is None else f"{state.evaluation_loss:.3f}",
            "" if state.reward is None else f"{state.reward:.2f}",
            _age(state.created),
        )
    out.print(table)


def _age(created: float) -> str:
    """Say how long ago a run was created; a clock that was set back meanwhile makes it no time in the future."""
    return f"{duration(max(time.time() - created, 0.0))} ago" if created else ""


@app.command()
def show(run: RunArgument, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show where a run stands, its losses, warnings and card."""
    summary = summarize(open_run(run))
    events = list(read_events(summary.paths.events))
    now = fold_all(RunState(), events)
    card, problem = _card(summary.paths)
    joules = read_history(summary.paths.hardware).energy_j
    if json:
        import json as json_module

        predicted = now.plan.memory_bytes if now.plan else None
        memory = {"predicted_bytes": predicted, "measured_bytes": now.peak_bytes or None, "energy_j": joules}
        about = {"card": card.model_dump(mode="json") if card else None, "card_problem": problem or None}
        print_json(json_module.dumps({**_as_dict(summary), **memory, **about}, indent=1))
        return
    state = summary.state
    where = f"{summary.status}, step {state.step} of {state.total_steps}"
    out.print(styled("[bold]{}[/]: {}", state.run, where))
    died = " ".join(death_text(summary.process_end)) if summary.process_end else ""
    again = f"Continue: burnish runs resume {typed_run(summary.paths)}" if summary.status in _CAN_GO_ON else ""
    for line in filter(None, (state.message, died, again)):
        out.print(line)
    warned: set[str] = set()
    for event in events:
        if isinstance(event, EvaluationDone):
            out.print(evaluation_text(event))
        elif isinstance(event, Warned) and event.message not in warned:  # a resumed run warns again
            warned.add(event.message)
            out.print(f"note: {event.message}")
        elif isinstance(event, RolledBack):
            out.print(str(rollback_sentence(event)))
    for line in _step_lines(now.steps):
        out.print(line)
    for line in filter(None, (memory_text(now), f"Energy of the GPU: {energy_size(joules)}" if joules else "")):
        out.print(line)
    if state.verdict and not (card and card.guard):
        out.print(f"Is it training? {state.verdict}")
    for line in card_lines(card) if card else ():
        out.print(line)
    if problem:
        out.note(problem)
    out.print(f"Folder: {summary.paths.root}")


@app.command()
def report(
    run: RunArgument,
    out_file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write a page with a run's curve, replies and card. A file that is there is never overwritten."""
    from burnish_engine.cli.training.run_report import render

    paths = open_run(run)
    must_be_new(out_file, "page")
    now = fold_all(RunState(), read_events(paths.events))
    card, problem = _card(paths)
    write_atomic(out_file, render(read_recipe(paths).name or paths.root.name, now, card, typed_run(paths)))
    if problem:
        out.note(problem)
    out.print(f"Wrote {out_file.absolute()}")


def _step_lines(steps: StepHistory) -> Iterator[str]:
    """Yield about ten lines on the course of a run's losses, of preferences with the margins."""
    columns = (steps.step, steps.loss, steps.margin)
    rows = zip(*(column.values() for column in columns), strict=True)
    for step, loss, margin in islice(rows, 0, None, max(1, len(steps) // 10)):
        yield f"step {step}: loss {loss:.4f}{'' if math.isnan(margin) else f', margin {margin:.3g}'}"


@app.command()
def stop(
    run: RunArgument,
    now: Annotated[bool, typer.Option("--now", help="End at once, without saving.")] = False,
) -> int:
    """Save and end a run."""
    return _command(run, "stop_now" if now else "stop")


def _sender(name: CommandName) -> Callable[[str], int]:
    """Make the function that sends a run this command."""

    def send(run: RunArgument) -> int:
        return _command(run, name)

    return send


_SENT: dict[CommandName, str] = {
    "pause": "Save a run and hold it, keeping its memory.",
    "suspend": "Save a run, end its process and free its memory.\n\n`burnish runs resume` starts it again.",
    "checkpoint": "Save a checkpoint now and continue.",
    "sample": "Let a run answer its recipe's prompts now.",
    "smaller_plan": "Continue with the next smaller memory plan.\n\nIt is slower, and computes the same numbers.",
}
for _name, _help in _SENT.items():
    app.command(_name.replace("_", "-"), help=_help)(_sender(_name))


@app.command()
def resume(
    run: RunArgument,
    queue: Annotated[bool, typer.Option("--queue", help="If the device is busy, start when it is free.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Use the device even if another run holds it.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Continue even if the plan does not fit.")] = False,
    gpus: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_GPUS, help="Share each step among so many GPUs from here on. 0: as the recipe says."
        ),
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", hidden=True, help="Started from the queue.")] = False,
) -> int:
    """End a pause, or start again from the last checkpoint."""
    if is_other_rank():
        return help_leader()
    paths = open_run(run)
    if actions.require_resumable(paths) == "paused":
        return _command(run, "resume")
    lease.dequeue(paths)
    try:
        return train_run(paths, read_recipe(paths), queue=queue or wait, force=force, anyway=anyway, gpus=gpus)
    finally:
        if wait:  # in every case the next run in the queue must not wait for us
            lease.release(paths)
            lease.start_waiting()


@app.command("queue")
def queue_() -> None:
    """Show waiting runs; start those whose device is free."""
    for root in lease.start_waiting():
        out.print(f"started {root.name}")
    waiting = lease.queue()
    for place, entry in enumerate(waiting, start=1):
        holder = lease.holder_of(entry.device)
        used = f", which {typed_run(RunPaths(Path(holder)))} uses" if holder else ""
        out.print(f"{place}. {typed_run(RunPaths(entry.run))} waits for {entry.device}{used}")
    if not waiting:
        out.print("No run waits.")


app.command("compare")(compare.compare)


@app.command()
def delete(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    for_good: Annotated[bool, typer.Option("--for-good", help="Free its disk space now.")] = False,
) -> None:
    """Delete a run with all its files.

    It can be restored for 7 days, unless it is deleted for good.
    """
    paths = open_run(run)
    actions.require_deletable(paths)
    if not yes:
        _confirm_deletion(paths)
    former = trash.discard(paths)
    if for_good:
        trash.purge(former.root)
    again = "" if for_good else f" For 7 days it comes back with: burnish runs restore {typed_run(former)}"
    out.print(f"Deleted {former.root.name}.{again}")


def _confirm_deletion(paths: RunPaths) -> None:
    try:
        typer.confirm(one_line(f"Delete {paths.root} and everything in it?"), abort=True)
    except typer.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        raise UsageError(f"Nobody confirmed that {paths.root.name} may be deleted.", "Add --yes.") from None


@app.command()
def restore(run: Annotated[str, typer.Argument(help="Name or former folder of a deleted run.")]) -> None:
    """Bring a deleted run back."""
    folder = run if trash.holds(run) else runs_dir() / run
    out.print(f"Restored {trash.restore(folder).root}.")


@app.command()
def note(
    run: RunArgument,
    tags: Annotated[str | None, typer.Option(help="Tags, separated by commas; they replace the former ones.")] = None,
    text: Annotated[str | None, typer.Option(help="Text; it replaces the former one.")] = None,
) -> None:
    """Show the tags and the notes of a run, or replace them."""
    paths = open_run(run)
    notes = read_notes(paths)
    if tags is not None or text is not None:
        kept = notes.tags if tags is None else split_tags(tags)
        notes = write_notes(paths, kept, notes.text if text is None else text)
    out.print(f"tags: {', '.join(notes.tags) or 'none'}")
    if notes.text:
        out.print(notes.text)


def _command(run: str, name: CommandName) -> int:
    paths = open_run(run)
    if paths.remote.exists() and summarize(paths).status == "interrupted":  # its job may run on, unfollowed
        from burnish_engine.remote.submit import send_elsewhere

        ended = send_elsewhere(paths, name)
        again = f"{name} sent. Follow it again: burnish runs resume {typed_run(paths)}"
        out.print(f"{paths.root.name}: {ended or again}")
        return ExitCode.DONE
    sent = actions.command(paths, name)
    if sent is None:
        out.print(f"{paths.root.name} is no longer queued.")
        return ExitCode.DONE
    deadline = time.monotonic() + _ACK_TIMEOUT_S
    while time.monotonic() < deadline:
        now = summarize(paths)  # before its events: the acknowledgement comes before the end
        for event in read_events(paths.events):
            if isinstance(event, CommandDone) and event.id == sent.id:
                out.print(f"{paths.root.name}: {name} {'done' if event.accepted else 'refused: ' + event.detail}")
                return ExitCode.DONE if event.accepted else ExitCode.USAGE
        if now.status not in actions.ALIVE:  # it ended without one, as a job that waited in a cluster's queue
            out.print(f"{paths.root.name} is {now.status}. {now.state.message}".rstrip())
            return ExitCode.DONE
        time.sleep(0.2)
    out.print(f"{paths.root.name} has not answered yet; it takes commands between steps.")
    return ExitCode.DONE


def _card(paths: RunPaths) -> tuple[RunCard | None, str]:
    """Read the run's card, or the reason why it cannot be read; neither where there is none."""
    try:
        return read_card(paths), ""
    except UsageError as error:
        return None, str(error)


def _as_dict(summary: StoredRun) -> dict[str, object]:
    end = summary.process_end
    died = {"process_end": {**end.model_dump(mode="json"), "cause": end.cause}} if end else {}
    return {
        **died,
        **summary.state.model_dump(mode="json"),
        "standing": summary.status,
        "folder": str(Path(summary.paths.root)),
    }
