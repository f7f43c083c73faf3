"""Carry a run out: lease the device, load, train, save, and record how the run ended."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from burnish_engine.contract.errors import BurnishError, DoesNotFitError, DriverError, ExitCode
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import RunEnded
from burnish_engine.hardware.host.awake import kept_awake
from burnish_engine.models.device.device import choose_device, is_driver_error, is_out_of_memory, lease_name
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.recorder import Listener, Recorder
from burnish_engine.runs.store import read_recipe
from burnish_engine.train.hardware_recorder import recorded_hardware
from burnish_engine.train.lifecycle.checkpoint import find_checkpoint, read_position
from burnish_engine.train.lifecycle.commands import Ending
from burnish_engine.train.lifecycle.measure import memory_reader
from burnish_engine.train.lifecycle.progress import Tally
from burnish_engine.train.parallel.launch import devices_of, started_ranks
from burnish_engine.train.parallel.ranks import RankLostError
from burnish_engine.train.parallel.world import World
from burnish_engine.train.recovery.recovery import release, short_message
from burnish_engine.train.session import Session

HowEnded = Literal["finished", "stopped", "suspended", "failed"]
_Open = Callable[..., Session]
RESTARTS = 3
"""Times that a run begins again by itself after one of its ranks was lost."""
_LONGEST_CAUSE = 200
_OUTCOMES: dict[Ending, HowEnded] = {"stop": "stopped", "stop_now": "stopped", "suspend": "suspended"}


@dataclass(frozen=True)
class TrainingOutcome:
    """End of a run: exit code, last step and message."""

    exit_code: ExitCode
    step: int
    message: str = ""


def run_training(
    paths: RunPaths,
    recipe: Recipe | None = None,
    *,
    listener: Listener | None = None,
    stopping: Callable[[], None] | None = None,
    force: bool = False,
    anyway: bool = False,
    gpus: Sequence[int] = (),
    restarts: int = RESTARTS,
) -> TrainingOutcome:
    """Start a run, or resume it from its newest intact checkpoint.

    Args:
        paths: run folder.
        recipe: frozen recipe of the run, where it is read already; None: it is read here.
        listener: function that receives every event as it is written.
        stopping: function called at once, on a thread of its own, when a signal asks to stop; the step is finished
            and saved first.
        force: whether to use the device even where another run holds it.
        anyway: whether to train although the plan says that the run does not fit.
        gpus: indices of the GPUs to share the steps now, instead of the recipe's; the passes of each step stay.
        restarts: number of times that a run whose ranks were started here begins again after one of them was lost.

    Raises:
        LeasedError: Another run holds the device.
        UsageError: Another process carries this run out. Other failures are recorded in the run and returned.
    """
    try:
        with lease.owned(paths):
            recipe, control = recipe or read_recipe(paths), ControlReader(paths.control)
            try:
                device = choose_device(recipe.devices)
                devices = devices_of(device, gpus or recipe.devices.gpus)
            except BurnishError as error:
                return _run_and_record(paths, recipe, listener, partial(_refuse, error))
            for each in dict.fromkeys(devices):
                lease.acquire(lease_name(each), paths, force=force)
            open_session = partial(Session.open, control=control, device=devices[0], anyway=anyway, stopping=stopping)
            return _run_and_record(paths, recipe, listener, open_session, devices, restarts)
    finally:
        lease.release(paths)
        lease.start_waiting()


def _refuse(error: BurnishError, *_: object, **_ranks: object) -> Session:
    raise error


def _run_and_record(
    paths: RunPaths,
    recipe: Recipe,
    listener: Listener | None,
    open_session: _Open,
    devices: Sequence[torch.device] = (),
    restarts: int = 0,
) -> TrainingOutcome:
    """Open a session, train, and record how the run ended, also where it could not be opened."""
    began = time.perf_counter()
    recorder, tally = Recorder(paths, listener), Tally()
    if devices and devices[0].type == "cuda":  # before ranks connect, which takes memory of it
        tally.held = memory_reader(devices[0])

    def end(outcome: HowEnded, code: ExitCode, message: str = "") -> TrainingOutcome:
        taken = tally.measure.taken() if tally.measure else None
        recorder.end(
            RunEnded(
                outcome=outcome,
                exit_code=int(code),
                step=tally.step,
                message=message,
                seconds=time.perf_counter() - began,
                measured=taken,
            )
        )
        if tally.measure and taken and outcome != "failed":
            tally.measure.keep(recorder.plan.basis if recorder.plan else None, taken, outcome)
        return TrainingOutcome(code, tally.step, message)

    recorder.update(further_devices=[*dict.fromkeys(map(lease_name, devices[1:]))])
    try:
        with kept_awake(f"Training {paths.root.name}"), recorded_hardware(paths, devices, tally):
            attempt = _Attempt(paths, recipe, recorder, tally, open_session, devices)
            ending, why = attempt.train(restarts)
    except BurnishError as error:
        _log_traceback(paths)
        return end("failed", error.exit_code, str(error))
    except KeyboardInterrupt:
        return end("stopped", ExitCode.STOPPED, f"Stopped at once; {_what_is_kept(paths)}")
    except BaseException as error:
        _log_traceback(paths)
        if is_out_of_memory(error):
            return end("failed", ExitCode.DOES_NOT_FIT, str(_does_not_fit(recipe, tally.step, error)))
        if is_driver_error(error):
            return end("failed", ExitCode.DRIVER, str(_driver_failed(tally.step, error)))
        end("failed", ExitCode.BUG, f"{type(error).__name__}: {error}")
        raise
    if ending is None:
        return end("finished", ExitCode.DONE, why)
    return end(_OUTCOMES[ending], ExitCode.STOPPED, _ending_text(ending, tally.step, paths))


@dataclass
class _Attempt:
    """Trains with the other ranks; where one of them is lost, all begin again at the newest checkpoint."""

    paths: RunPaths
    recipe: Recipe
    recorder: Recorder
    tally: Tally
    open_session: _Open
    devices: Sequence[torch.device]
    began: int | None = None  # step that the newest session began at; None: it is not open yet

    def train(self, restarts: int) -> tuple[Ending | None, str]:
        """Train to the end, beginning again so many times; return how it ended, and why it did so early.

        Without a step in between nothing would become better, and ranks that torchrun started are its own.
        """
        while True:
            try:
                return self._once()
            except RankLostError as error:
                made = self.began is not None and self.tally.step > self.began
                if not (restarts and made) or World.from_environment() is not None:
                    raise
                lost = error.what
            restarts -= 1
            self.recorder.warn("rank_lost", f"{lost} All begin again: {_what_is_kept(self.paths)}")
            release(self.devices[0])

    def _once(self) -> tuple[Ending | None, str]:
        self.began = None
        with (
            started_ranks(self.devices, self.paths.root) as ranks,
            closing(self.open_session(self.paths, self.recipe, self.recorder, self.tally, ranks=ranks)) as session,
        ):
            self.began = self.tally.step
            return session.train(), session.ending_text


def _ending_text(ending: Ending, step: int, paths: RunPaths) -> str:
    if ending == "stop_now":
        return f"Stopped at once as asked; {_what_is_kept(paths)}"
    done = "Suspended" if ending == "suspend" else "Stopped"
    return f"{done} as asked; everything up to step {step} is saved." if step else f"{done} before the first step."


def _what_is_kept(paths: RunPaths) -> str:
    newest, _ = find_checkpoint(paths.checkpoints)
    if newest is None:
        return "there was no checkpoint yet, so nothing is kept."
    return f"the last checkpoint (step {read_position(newest).step}) is kept."


def _does_not_fit(recipe: Recipe, step: int, error: BaseException) -> DoesNotFitError:
    tokens = recipe.train.micro_batch_tokens
    return DoesNotFitError(
        f"Out of memory at step {step} with {tokens} tokens a pass ({short_message(error)}), and there is no "
        "smaller plan left.",
        "Lower train.micro_batch_tokens (and data.max_length); then start again.",
    )


def _driver_failed(step: int, error: BaseException) -> DriverError:
    first = str(error).splitlines()[0][:_LONGEST_CAUSE].rstrip(".")
    return DriverError(
        f"The GPU or its driver failed at step {step} ({first}).",
        "Resume the run. If it happens again, restart the machine, run `burnish doctor`, and take back overclocking.",
    )


def _log_traceback(paths: RunPaths) -> None:
    try:
        with paths.stderr_log.open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
    except OSError:
        return  # a full disk: the error itself is still reported
