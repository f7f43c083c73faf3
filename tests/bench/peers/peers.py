"""Burnish beside its peers on one GPU, in one go: the same documents, tokens a step and adapter, a fresh process each.

    python tests/bench peers --work /tmp/peers --tokenizer DIR --out rows.jsonl
        [--engines burnish burnish-int8 burnish-fp8 unsloth trl liger] [--models qwen3-0.6b llama-3.2-1b qwen3-4b]
        [--tokens 4096 16384] [--checkpointing none offload] [--attention fa2 sdpa] [--length N] [--repeat N]
        [--limit-s S]

Every run adds one JSON row to the file; the table at the end holds all rows of the file, so a comparison may be made
in several calls (`--table` only prints it). FlashAttention-2 is taken from the folder in PEERS_FA2, which no run
without it sees; Burnish has attention of its own. The first peer's passes are recorded in the work folder, and Burnish
trains on these (`shared_packs` in its rows), so name peers before it. "offload" is what each engine does to save
memory: Unsloth's offloaded checkpoints, gradient checkpointing in the others, and in Burnish the plan for as much as
the most frugal of them allocated. --length makes all documents equally long and switches the peers' packing off, for a
peer that cannot pack: no token is padding, and Burnish packs the same rows. Peak memory of the process is NVML's, read
from outside. A peer's row holds the UNSLOTH_ variables that were set.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.peers.documents import COUNT
from bench.shared.commands import BURNISH, script
from bench.shared.gpus import memory_reader, visible_gpus
from bench.shared.random_models import SHAPES, make_models, shape_of
from bench.shared.rows import add_row, read_rows

KEEP = "rotated"  # ours where nothing is recomputed
CONTEXT_GIB = 0.75  # of a process beside what its allocator holds
HALF_MEMORY = {("qwen3-4b", 16384, "none"): "offloaded+narrow:32,products"}  # at half of what the fastest peer takes
OURS = {"burnish": "16", "burnish-int8": "int8", "burnish-fp8": "fp8"}  # name: --products
ENGINES = (*OURS, "unsloth", "trl", "liger")
POLL_S = 0.05
QLORA_FROM = (
    "qwen3-4b",
    "gemma-3-4b",
    "qwen3.5-4b",
)  # fine-tuned over a quantized base, unless --method says otherwise
MEDIANS = ("tok_s", "wall_tok_s", "step_ms", "peak_allocated_gib", "peak_reserved_gib", "nvml_gib", "first_step_s")


@dataclass(frozen=True)
class Run:
    """One configuration of one engine."""

    engine: str
    model: str
    method: str
    tokens: int
    checkpointing: str
    attention: str


def plan(options: argparse.Namespace) -> list[Run]:
    """All runs, those to be compared next to each other."""
    runs = []
    for model, tokens, checkpointing in itertools.product(options.models, options.tokens, options.checkpointing):
        method = options.method or ("qlora" if model in QLORA_FROM else "lora")
        for engine in options.engines:
            kinds = ["own"] if engine in OURS else options.attention
            runs += [Run(engine, model, method, tokens, checkpointing, attention) for attention in kinds]
    return runs


def command(run: Run, options: argparse.Namespace) -> list[str]:
    """Command to start: our own benchmark, or `peer_step`."""
    common = ["--method", run.method, "--tokens", str(run.tokens)]
    common += ["--steps", str(options.steps), "--warm-up", str(options.warm_up)]
    length = ["--length", str(options.length)] if options.length else []
    packs = options.work / "packs" / f"{'-'.join([str(run.tokens), str(options.steps), *length[1:]])}.npz"
    if run.engine in OURS:
        shape, _, layers = run.model.partition(":")
        burnish = [*BURNISH, "bench", "step", "--shape", shape]
        burnish += ["--layers", layers] if layers else []
        burnish += ["--products", OURS[run.engine]]
        keep = ["--keep", HALF_MEMORY.get((run.model, run.tokens, run.checkpointing), KEEP)]
        if run.checkpointing == "offload":
            keep = ["--budget-gib", f"{least_of_peers(run, read_rows(options.out)) + CONTEXT_GIB:.3f}"]
        measured = options.steps - options.warm_up  # a peer's steps include those to warm up
        common[common.index("--steps") + 1] = str(measured)
        shared = ["--packs", str(packs)] if packs.is_file() else []
        return [*burnish, *common, *keep, *shared, "--json"]
    common += ["--checkpointing", run.checkpointing]
    folder = options.work / "models" / run.model
    common += ["--attention", run.attention, "--documents", str(options.documents)]
    record = [] if packs.is_file() else ["--record", str(packs)]
    return script("peer_step", "--engine", run.engine, "--model", folder, *common, *length, *record)


def least_of_peers(run: Run, rows: list[dict[str, Any]]) -> float:
    """Memory that the most frugal peer allocated in the same setting, GiB; Burnish may reserve no more."""
    same = {name: getattr(run, name) for name in ("model", "method", "tokens", "checkpointing")}
    found = [
        row["peak_allocated_gib"]
        for row in rows
        if "error" not in row and row["engine"] not in OURS and same.items() <= row.items()
    ]
    if not found:
        raise SystemExit(f"No peer ran {same} yet: name one before burnish.")
    return min(found)


def environment_of(run: Run, work: Path) -> dict[str, str]:
    """Offline, with compiled kernels kept per engine, and FlashAttention-2 only where it is asked for."""
    paths = [os.environ["PYTHONPATH"], *([os.environ["PEERS_FA2"]] if run.attention == "fa2" else [])]
    cache = work / "cache" / run.engine
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "WANDB_DISABLED": "true",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "BURNISH_HOME": str(work / "home"),
        "TOKENIZERS_PARALLELISM": "false",
    }


def measure(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """Run it once; the row says `error` where it failed."""
    work: Path = options.work
    cold = not (work / "cache" / run.engine).exists()
    folder = work / "runs" / run.engine
    folder.mkdir(parents=True, exist_ok=True)
    began, start = time.monotonic(), command(run, options)
    opened = {"mode": "w+", "encoding": "utf-8", "errors": "replace"}  # a progress bar is cut anywhere
    with (folder / "stdout.log").open(**opened) as out, (folder / "stderr.log").open(**opened) as err:
        process = subprocess.Popen(start, cwd=folder, env=environment_of(run, work), stdout=out,
                                   stderr=err, text=True, start_new_session=True)  # fmt: skip
        peak = watch(process, options.timeout_s)
        for file in (out, err):
            file.seek(0)
        printed, complained = out.read(), err.read()
    row = asdict(run) | {"cold": cold, "wall_s": round(time.monotonic() - began, 1), "nvml_gib": peak / 2**30}
    if run.engine == "unsloth":
        row["settings"] = {name: value for name, value in os.environ.items() if name.startswith("UNSLOTH_")}
    result = parse(run.engine, printed) if process.returncode == 0 else None
    if result is None:
        return row | {"error": (complained or printed).strip()[-1500:], "returncode": process.returncode}
    return row | result | asdict(run) | {"nvml_gib": row["nvml_gib"], "shared_packs": "--packs" in start}


def parse(engine: str, printed: str) -> dict[str, Any] | None:
    """The row that the run printed; None where it printed none."""
    if engine not in OURS:
        printed = printed.rpartition("RESULT ")[2].partition("\n")[0]
    try:
        return json.loads(printed)
    except ValueError:
        return None


def watch(process: subprocess.Popen[str], timeout_s: float) -> int:
    """The GPU's peak use in bytes until the process ends, without what others used before; ends it at the timeout."""
    memory = memory_reader(visible_gpus()[0])
    before = peak = memory().used
    deadline = time.monotonic() + timeout_s
    while process.poll() is None:
        peak = max(peak, memory().used)
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)  # its loaders too
        time.sleep(POLL_S)
    return peak - before


def table(rows: list[dict[str, Any]]) -> str:
    """Medians of equal runs; beside each peer how many times faster Burnish is in the same setting."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    failed: dict[tuple[Any, ...], str] = {}
    for row in rows:
        key = tuple(row[name] for name in ("model", "method", "tokens", "checkpointing", "engine", "attention"))
        if "error" in row:
            failed[key] = reason(row)
        else:
            groups[key].append(row)
    medians = {
        key: {name: statistics.median(row[name] for row in own) for name in MEDIANS if all(name in row for row in own)}
        for key, own in groups.items()
    }
    ours = {key[:5]: values["tok_s"] for key, values in medians.items() if key[4] in OURS}
    lines = [
        "| model | method | tokens | checkpointing | engine | attention | runs | tok/s | step ms "
        "| GiB allocated | reserved | process | first step s | loss | Burnish is |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(set(medians) | set(failed), key=_order):
        head = " | ".join(str(part) for part in key)
        if key not in medians:
            lines.append(f"| {head} | failed: {failed[key]} |" + " |" * 8)
            continue
        values, losses = medians[key], groups[key][-1].get("loss") or [float("nan")]
        faster = [
            f"{ours[(*key[:4], engine)] / values['tok_s']:.2f}x{engine.removeprefix('burnish').replace('-', ' in ')}"
            for engine in OURS
            if (*key[:4], engine) in ours and key[4] not in OURS
        ]
        cells = [
            str(len(groups[key])),
            f"{values['tok_s']:,.0f}",
            f"{values['step_ms']:.1f}",
            *(f"{values.get(name, float('nan')):.2f}" for name in MEDIANS[3:6]),
            f"{values.get('first_step_s', float('nan')):.1f}",
            f"{losses[0]:.3f} to {losses[-1]:.3f}",
            ", ".join(faster),
        ]
        lines.append(f"| {head} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reason(row: dict[str, Any]) -> str:
    """The last line that names an error of a run that failed, at most 60 characters."""
    lines = row["error"].splitlines() or [f"exit {row['returncode']}"]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])[:60]


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    model, method, tokens, checkpointing, engine, attention = key
    return list(SHAPES).index(model.partition(":")[0]), method, tokens, checkpointing, ENGINES.index(engine), attention


def known(model: str) -> str:
    """The name of a model of which `random_models` knows the shape, maybe with the number of its layers."""
    try:
        shape_of(model)
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{model} is none of {', '.join(SHAPES)}") from error
    return model


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="rows, one JSON object a line; added to")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table of --out")
    parser.add_argument("--work", type=Path, default=Path("/tmp/burnish-peers"), help="models, caches, logs")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer for the models that must be made")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--models", nargs="+", type=known, default=["qwen3-0.6b", "llama-3.2-1b", "qwen3-4b"])
    parser.add_argument("--method", choices=["lora", "qlora"], help="for all; otherwise by the model's size")
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 16384])
    parser.add_argument("--checkpointing", nargs="+", choices=["none", "offload"], default=["none", "offload"])
    parser.add_argument("--attention", nargs="+", choices=["fa2", "sdpa"], help="of the peers; all there is")
    parser.add_argument("--documents", type=int, default=COUNT)
    parser.add_argument("--length", type=int, default=0, help="tokens of every document, which peers do not pack then")
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--warm-up", type=int, default=6, help="steps left out of the speed")
    parser.add_argument("--repeat", type=int, default=1, help="fresh processes a configuration; the table has medians")
    parser.add_argument("--timeout-s", type=float, default=400, help="of one process")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="start nothing after so many seconds")
    options = parser.parse_args()
    options.out, options.work = options.out.resolve(), options.work.resolve()
    if options.attention is None:
        options.attention = ["fa2", "sdpa"] if "PEERS_FA2" in os.environ else ["sdpa"]
    elif "fa2" in options.attention and "PEERS_FA2" not in os.environ:
        parser.error("PEERS_FA2 must name the folder that holds flash_attn")
    return options


def main() -> None:
    """Measure what is asked for and print the table."""
    options = parse_options()
    began = time.monotonic()
    if not options.table:
        if not set(options.engines) <= set(OURS):
            make_models(options.work / "models", options.models, options.tokenizer)
        for run in plan(options) * options.repeat:
            if time.monotonic() - began > options.limit_s:
                print("out of time; the rest was not run", flush=True)
                break
            row = measure(run, options)
            add_row(options.out, row)
            print(run, f"{row['tok_s']:,.0f} tok/s" if "tok_s" in row else row["error"][-300:], flush=True)
    print(table(read_rows(options.out)))


if __name__ == "__main__":
    main()
