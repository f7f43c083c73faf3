"""A duel with a run on each GPU at the same time, where `burnish duel` makes them one after another.

    python tests/bench duel_at_once --out FOLDER [--factors 0.3,1,3] [--evaluations N] [--together N] [--limit-s S]
        RECIPE...

Continues the duel in FOLDER where there is one. The runs are those that `burnish duel` would make; each sees one GPU
through CUDA_VISIBLE_DEVICES. Runs that are compared have it to themselves, since their speed, memory and energy are;
those that only look for a learning rate may share it (`--together`): there each plans with the memory that is free at
that moment, and places have caches and past runs of their own. After `--limit-s` seconds runs are stopped and
saved, to continue later.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.planner import ready_runs
from burnish_engine.duel.prepare import forecast_duel
from burnish_engine.duel.report.report import render
from burnish_engine.duel.run_duel import measure_run, record, run_duel
from burnish_engine.duel.sides.spec import DuelOptions, RunSpec
from burnish_engine.duel.state import DuelFolder, DuelState, create, open_duel, owned, side_recipes

from bench.shared.commands import script
from bench.shared.gpus import VISIBLE, visible_gpus


class _Terminal:
    """Says what ended."""

    def run_begins(self, state: DuelState, spec: RunSpec) -> None:
        """Say nothing."""

    def run_progress(self, run: RunStateFile, status: ObservedStatus) -> None:
        """Say nothing."""

    def run_ended(self, state: DuelState, outcome: RunOutcome) -> None:
        """Print what came of the run."""
        loss = outcome.held_out_loss
        print(f"{outcome.spec.id}: {outcome.ended}, held-out loss {loss}, {outcome.training_s:.0f} s", flush=True)


def one_run(folder: DuelFolder, state: DuelState, spec: RunSpec) -> None:
    """Make a run in this process, and leave what it came to beside its recipe."""
    outcome = measure_run(folder, state, side_recipes(folder, state)[spec.side], spec, _Terminal())
    write_atomic(_outcome_file(folder, spec), outcome.model_dump_json())


def at_once(folder: DuelFolder, devices: int, together: int, until: float) -> bool:
    """Make runs until none is left (true) or the time is up."""
    terminal, running = _Terminal(), dict[int, tuple[RunSpec, subprocess.Popen[bytes]]]()
    with owned(folder):
        _, state = open_duel(folder.root)
        while True:
            for place, (spec, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[place]
                if process.returncode:
                    _end(running)
                    sys.exit(f"{spec.id} ended with exit code {process.returncode}; see {folder.log(spec)}")
                outcome = RunOutcome.model_validate_json(_outcome_file(folder, spec).read_text(encoding="utf-8"))
                state = record(folder, state, outcome)
                terminal.run_ended(state, outcome)
            if time.monotonic() > until:
                _end(running)
                return False
            ready = ready_runs(state.sides, state.options, state.seed, state.scores)
            if not ready:
                return True
            begun = {spec for spec, _ in running.values()}
            if ready[0].phase == "grid":
                free = [place for place in range(devices * together) if place not in running]
            else:
                busy = {place % devices for place in running}
                free = [place for place in range(devices) if place not in busy]
            for place, spec in zip(free, (spec for spec in ready if spec not in begun), strict=False):
                running[place] = spec, _begin(folder, spec, place, devices)
            time.sleep(0.2)


def _begin(folder: DuelFolder, spec: RunSpec, place: int, devices: int) -> subprocess.Popen[bytes]:
    device = place % devices
    command = script("duel_at_once", "--out", folder.root, "--spec", spec.model_dump_json())
    home = Path(os.environ.get("BURNISH_HOME", folder.root / "home")) / f"place{place}"  # leases are by home
    seen = visible_gpus()
    gpu = seen[device] if device < len(seen) else str(device)
    return subprocess.Popen(command, env={**os.environ, VISIBLE: gpu, "BURNISH_HOME": str(home)})


def _end(running: dict[int, tuple[RunSpec, subprocess.Popen[bytes]]]) -> None:
    for _, process in running.values():
        process.send_signal(signal.SIGINT)
    for _, process in running.values():
        process.wait()


def _outcome_file(folder: DuelFolder, spec: RunSpec) -> Path:
    return folder.root / "recipes" / f"{spec.id}.outcome.json"


def main() -> None:
    """Begin the duel or continue with it; where all runs are made, say what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--factors", default="0.3,1,3")
    parser.add_argument("--evaluations", type=int, default=DuelOptions().evaluations)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--devices", type=int, help="GPUs to use; all there are")
    parser.add_argument("--together", type=int, default=1, help="runs on a GPU while learning rates are searched for")
    parser.add_argument("--spec", help=argparse.SUPPRESS)
    parser.add_argument("recipes", nargs="*", type=Path)
    options = parser.parse_args()
    if options.together < 1 or (options.devices is not None and options.devices < 1):
        parser.error("--together and --devices have to be 1 or more")
    until = time.monotonic() + options.limit_s
    if options.spec:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            one_run(*open_duel(options.out), RunSpec.model_validate_json(options.spec))
        except KeyboardInterrupt:
            sys.exit("stopped; what was trained is saved")
        return
    if not (options.out / "duel.json").is_file():
        factors = [float(part) for part in options.factors.split(",")]
        settings = DuelOptions(factors=factors, evaluations=options.evaluations)
        found = forecast_duel(options.recipes, settings, " ".join(["python tests/bench duel_at_once", *sys.argv[1:]]))
        create(found.state, found.recipes, options.out)
    folder, _ = open_duel(options.out)
    if options.devices is None:
        options.devices = max(len(visible_gpus()), 1)
    if at_once(folder, options.devices, options.together, until):
        run_duel(folder, _Terminal())
    write_atomic(folder.report, render(open_duel(options.out)[1]))


if __name__ == "__main__":
    main()
