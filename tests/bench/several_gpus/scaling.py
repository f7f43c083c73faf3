"""Times of training on one and several GPUs of a host, in one call: a row for each setting and number of GPUs.

    python tests/bench scaling --out FOLDER [--gpus 1 2 4] [--repeat N] [--limit-s S] JOB...

| job | what |
|---|---|
| steps | our step, a pass on each GPU; on one, all cards at once, each by itself |
| forms | the same on the most GPUs, in the other forms of devices.exchange |
| host | with NCCL_P2P_DISABLE=1: gradients go through host memory, as between cards without peer-to-peer |
| peers | TRL and Unsloth with DDP under torchrun, as much on each GPU; first made: models in --work, of --tokenizer |
| shared | a 14B in 16 bits, more than a card of 24 GiB has: layers shared, from host memory, resident, as planned |
| whole | a whole 1B, its weights shared out (FSDP2), also on 20 GiB, with the peak of each card; models as of peers |
| faults | tests of a killed rank, of resuming on other numbers, and of the bits (`test_gpu_ranks.py`); a row for each |

All settings of one number of GPUs are measured in one start. `rows.jsonl` in the folder, which is added to, gets a
row as soon as it is measured, so a call that is cut keeps what it has; the table at the end has the medians of equal
rows, how many times faster than on one GPU each is, and for ours what an exchange took beside what was predicted.
`--table` only prints it. NCCL's multicast stays off unless NCCL_NVLS_ENABLE says otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from bench import ROOT
from bench.peers.peers import HALF_MEMORY, KEEP, Run, environment_of
from bench.shared.commands import BURNISH, script
from bench.shared.gpus import VISIBLE, visible_gpus
from bench.shared.random_models import make_models
from bench.shared.rows import add_row, read_rows

SHAPES = {"qwen3-0.6b": "lora", "llama-3.2-1b": "lora", "qwen3-4b": "qlora"}
FAULTS = "tests/engine/train/parallel/test_gpu_ranks.py"
JOBS = ("steps", "forms", "host", "peers", "shared", "whole", "faults")
KEY = ("job", "engine", "model", "tokens", "gpus", "exchange", "keep")
WHOLE = "llama-3.2-1b"
SHARED, SHARED_GIB = "qwen3-14b", 24
WHOLE_GIB = 20  # less than a whole 1B takes on one GPU
TESTED = re.compile(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b")
NAMED = re.compile(r"\S+\.py::(\S+)")
CORES_OF_A_TEST, MOST_AT_ONCE = 4, 12  # of tests with up to four ranks each
END_S = 2.5  # for a process that is told to end
WARM_UP = 4  # steps of ours before those that are timed
CELLS = ("tok_s", "step_ms", "exchange_ms", "expected_exchange_ms", "exchange_gb_s", "peak_allocated_gib", "nvml_gib")
SHOWN = ("model", "tokens", "gpus", "exchange", "keep", *CELLS, "shared_gib", "streamed_gib", "predicted", "graphs",
         "card_gib", "test", "after_s", "passed", "error")  # fmt: skip
Job = tuple[dict[str, Any], list[str], list[dict[str, str]]]
"""Columns of its rows, a command, and the environment of each process that runs it at the same time."""


class Bench:
    """Runs jobs one process after another, and writes what they print.

    Args:
        options: what the command line says.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._until, self._lock = options, time.monotonic() + options.limit_s, threading.Lock()
        self._rows: Path = options.out / "rows.jsonl"

    def run(self, job: str, turn: int) -> None:
        """Do a job once; what no time is left for is named and left out."""
        for name, command, given in getattr(self, f"_{job}")(turn):
            left = self._until - time.monotonic()
            if left < self._options.least_s:
                print(f"{job} {name}: no time left", flush=True)
                continue
            self._measure(job, name, command, given, min(left, self._options.timeout_s))

    def _measure(
        self, job: str, name: dict[str, Any], command: Sequence[str], given: Sequence[dict[str, str]], timeout_s: float
    ) -> None:
        """Start a process for each environment, all at once, and write their rows as they print them."""
        log = self._options.out / f"{job}.log"
        environment = {"NCCL_NVLS_ENABLE": "0"} | os.environ
        if job == "host":
            environment.pop("NCCL_SHM_DISABLE", None)
        until = time.monotonic() + timeout_s
        with log.open("a", encoding="utf-8") as complained:
            complained.write(f"$ {' '.join(command)}\n")
            complained.flush()
            streams = {"stdout": subprocess.PIPE, "stderr": complained, "text": True, "errors": "replace"}
            options = {"cwd": ROOT, "start_new_session": True, **streams}
            processes = [subprocess.Popen(command, env=environment | each, **options) for each in given]
            readers = [
                threading.Thread(target=self._keep_rows, args=(job, name, process, complained)) for process in processes
            ]
            for reader in readers:
                reader.start()
            try:
                for process in processes:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(until - time.monotonic(), 0.0))
            finally:
                for process, reader in zip(processes, readers, strict=True):
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGTERM)
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(END_S)
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)  # what it started too
                    code = process.wait()
                    reader.join()
                    if code:
                        self._write(job, name | {"error": f"exit {code}; {log.name} says more"})

    def _keep_rows(self, job: str, name: dict[str, Any], process: subprocess.Popen[str], complained: TextIO) -> None:
        """Write what a process prints, as it does, into the log and the table's rows."""
        assert process.stdout is not None
        began = time.monotonic()
        for line in process.stdout:
            with self._lock:
                complained.write(line)
            for row in _rows_of(line):
                seconds = {"after_s": round(time.monotonic() - began, 1)} if "test" in row else {}
                self._write(job, name | row | seconds)

    def _write(self, job: str, row: dict[str, Any]) -> None:
        with self._lock:
            add_row(self._rows, {"job": job} | row)
            print(job, {cell: row[cell] for cell in SHOWN if cell in row}, flush=True)

    def _ours(self, count: int, exchanges: Sequence[str], environments: list[dict[str, str]]) -> Job:
        """All models and numbers of tokens in one start."""
        options = self._options
        settings = [
            {
                "shape": shape,
                "tokens": tokens,
                "method": SHAPES[shape],
                "keep": options.keep or HALF_MEMORY.get((shape, tokens, "none"), KEEP),
                "exchange": exchange,
                "steps": options.steps,
                "warmup": WARM_UP,
            }
            for shape, tokens, exchange in itertools.product(options.models, options.tokens, exchanges)
        ]
        given = json.dumps({"gpus": [count], "settings": settings})
        kept = {"keep": options.keep} if options.keep else {}
        return {"engine": "burnish"} | kept, script("scaling_rows", given), environments

    def _steps(self, turn: int) -> Iterator[Job]:
        counts = self._options.gpus if turn % 2 == 0 else self._options.gpus[::-1]
        for count in counts:
            yield self._ours(count, ["whole"], _each_alone() if count == 1 else [{}])

    def _forms(self, turn: int) -> Iterator[Job]:
        yield self._ours(max(self._options.gpus), ["sliced", "bf16"] if turn % 2 == 0 else ["bf16", "sliced"], [{}])

    def _host(self, turn: int) -> Iterator[Job]:
        forms = ["whole", "bf16"] if turn % 2 == 0 else ["bf16", "whole"]
        yield self._ours(max(self._options.gpus), forms, [{"NCCL_P2P_DISABLE": "1"}])

    def _peers(self, turn: int) -> Iterator[Job]:
        options = self._options
        make_models(options.work / "models", options.models, options.tokenizer)
        counts = options.gpus if turn % 2 == 0 else options.gpus[::-1]
        attention = "fa2" if "PEERS_FA2" in os.environ else "sdpa"
        for model, tokens, engine, count in itertools.product(options.models, options.tokens, options.peers, counts):
            run = Run(engine, model, SHAPES[model], tokens, "none", attention)
            settings = ["--engine", engine, "--model", options.work / "models" / model, "--method", SHAPES[model]]
            settings += ["--tokens", tokens, "--attention", attention, "--steps", 18, "--warm-up", 6]
            name = {"engine": engine, "model": model, "tokens": tokens, "gpus": count, "attention": attention}
            python, *step = script("peer_step", *settings)
            ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
            cards = _each_alone() if count == 1 else [{}]
            yield name, [python, *ranks, *step], [environment_of(run, options.work) | card for card in cards]

    def _shared(self, turn: int) -> Iterator[Job]:
        ways = {
            "shared": ["--weights", "ranks"],
            "from host": ["--weights", "host"],
            "resident": ["--weights", "card"],
            f"for {SHARED_GIB} GiB": ["--budget-gib", str(SHARED_GIB)],
        }
        tokens = min(self._options.tokens)
        gpus = [word for count in self._options.gpus if count > 1 for word in ("--gpus", str(count))]
        for way in list(ways) if turn % 2 == 0 else list(ways)[::-1]:
            command = [*BURNISH, "bench", "step", "--shape", SHARED]
            command += ["--tokens", str(tokens), "--keep", "attention", "--head-rows", "1024", *ways[way]]
            command += ["--steps", "6", "--warm-up", "3", *gpus]
            yield {"engine": "burnish", "model": f"{SHARED} {way}", "tokens": tokens}, command, [{}]

    def _whole(self, turn: int) -> Iterator[Job]:
        make_models(self._options.work / "models", [WHOLE], self._options.tokenizer)
        for count in self._options.gpus if turn % 2 == 0 else self._options.gpus[::-1]:
            folder, tokens = self._options.work / "models" / WHOLE, min(self._options.tokens)
            for gib in (0, WHOLE_GIB) if count > 1 else (0,):
                name = {"engine": "burnish", "model": f"{WHOLE} whole{f' on {gib} GiB' if gib else ''}"}
                settings = ["--model", folder, "--gpus", count, "--tokens", tokens, "--budget-gib", gib]
                yield name | {"tokens": tokens, "gpus": count}, script("whole_step", *settings), [{}]

    def _faults(self, turn: int) -> Iterator[Job]:
        if turn == 0:
            yield (
                {},
                [sys.executable, "-m", "pytest", "-m", "gpu", "-v", "-p", "no:cacheprovider", *_at_once(), FAULTS],
                [{}],
            )


def _at_once() -> list[str]:
    """Return the options by which so many tests run at the same time as cores allow, where pytest-xdist is there."""
    if not importlib.util.find_spec("xdist"):
        return []
    return ["-n", str(max(2, min(MOST_AT_ONCE, (os.cpu_count() or 1) // CORES_OF_A_TEST))), "--dist", "worksteal"]


def _each_alone() -> list[dict[str, str]]:
    """Return for each GPU the environment of a process that sees it alone."""
    return [{VISIBLE: card} for card in visible_gpus()]


def _rows_of(printed: str) -> list[dict[str, Any]]:
    """Return the JSON objects among what was printed, a peer's behind its word; of tests, each, and the line of all."""
    found: list[dict[str, Any]] = []
    for line in printed.splitlines():
        text = line.removeprefix("RESULT ")
        if text.startswith("{"):
            try:
                found.append(json.loads(text))
            except ValueError:
                continue
        elif (ended := TESTED.search(line)) and (test := NAMED.search(line)):
            found.append({"test": test[1], "passed": ended[1]})
        elif " passed" in line or " failed" in line:
            found.append({"passed": line.strip("= ")})
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of the medians of equal rows, with how many times faster they are than one GPU."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "tok_s" in row:
            groups[tuple(row.get(name, "") for name in KEY)].append(row)
    medians = {
        key: {
            cell: statistics.median(row[cell] for row in own)
            for cell in CELLS
            if all(row.get(cell) is not None for row in own)
        }
        for key, own in groups.items()
    }
    lines = [
        "| job | engine | model | tokens a GPU | GPUs | exchange | keep | rows | tok/s | times one | step ms "
        "| exchange ms | predicted | GB/s | GiB | of the process |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, found in sorted(medians.items(), key=lambda item: [str(part).zfill(8) for part in item[0]]):
        job = "steps" if key[0] in ("forms", "host") else key[0]
        alone = (job, *key[1:4], 1, key[-1])
        one = next((medians[other] for other in medians if (*other[:5], other[-1]) == alone), None)
        times = f"{found['tok_s'] / one['tok_s']:.3f}" if one else ""
        cells = [f"{found['tok_s']:,.0f}", times, f"{found['step_ms']:.1f}"]
        cells += [f"{found[cell]:.3f}" if cell in found else "" for cell in CELLS[2:]]
        lines.append(f"| {' | '.join(map(str, key))} | {len(groups[key])} | {' | '.join(cells)} |")
    lines += [f"failed: {row}" for row in rows if "error" in row]
    tests = [f"{row.get('test', 'all')}: {row['passed']} {row.get('after_s', '')}" for row in rows if "passed" in row]
    return "\n".join(lines + tests)


def parse_options() -> argparse.Namespace:
    """Parse the command line and make the folder of the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--out", type=Path, required=True, help="folder of rows and logs")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 4096], help="of each GPU")
    parser.add_argument("--peers", nargs="+", choices=["trl", "unsloth"], default=["unsloth", "trl"])
    parser.add_argument("--steps", type=int, default=16, help="that are timed, of ours")
    parser.add_argument("--keep", default="", help="what layers keep, of ours, in place of what suits each model")
    parser.add_argument("--repeat", type=int, default=1, help="turns, each second one from the last number of GPUs")
    parser.add_argument("--work", type=Path, default=Path("/tmp/burnish-peers"), help="models and caches of peers")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer for the models that must be made")
    parser.add_argument("--timeout-s", type=float, default=240, help="of one process")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="of all")
    parser.add_argument("--least-s", type=float, default=40, help="start nothing with less time than this left")
    options = parser.parse_args()
    if unknown := sorted(set(options.jobs) - set(JOBS)):
        parser.error(f"{unknown[0]} is none of {', '.join(JOBS)}")
    options.out, options.work = options.out.resolve(), options.work.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    """Measure what is asked for and print the table."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # past what ends the processes
    bench = Bench(options)
    for turn, job in itertools.product(range(options.repeat), options.jobs if not options.table else ()):
        bench.run(job, turn)
    print(table(read_rows(options.out / "rows.jsonl")))


if __name__ == "__main__":
    main()
