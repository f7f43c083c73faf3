"""`burnish bench`: measures whether this machine is as fast as it should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from burnish_engine.cli.terminal import err, out, print_json
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe import MOST_GPUS
from burnish_engine.contract.recipe.recipe_preference import Objective
from burnish_engine.contract.recipe.recipe_train import Masking, Optimizer
from burnish_engine.runs.jobs.benches import announced
from burnish_kernels.registry import OPS

if TYPE_CHECKING:
    from burnish_engine.bench.step_options import StepOptions

_OF_ROWS = tuple(name for name in get_args(Objective) if name != "grpo")  # which writes its own

app = typer.Typer(help="Measure whether this machine is as fast as it should be.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure whether this machine is as fast as it should be."""


@app.command()
def kernels(
    op: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This kernel only; may be repeated.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="First find the fastest settings for this GPU; runs use them from then on.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Time every kernel on this GPU.

    Beside each time stands what it is of the GPU's best, measured first: how fast it copies memory, or multiplies
    large matrices. And how many times faster the kernel is than the same in plain PyTorch.
    """
    unknown = [name for name in op or [] if name not in OPS]
    if unknown:
        raise UsageError(f"There is no kernel {unknown[0]!r}.", f"Known are {', '.join(OPS)}.")
    from burnish_kernels import bench
    from burnish_kernels.timer import CudaTimer, why_not

    problem = why_not()
    if problem:
        raise SetupError(problem, "`burnish doctor` says what this machine has.")
    _warn_of_company()
    names, timer = op or OPS, CudaTimer()
    say = err if json else out
    rows = []
    parts = len(names) * (2 if tune else 1)  # to tune an operation takes at least as long as to time it
    with announced("kernels", ", ".join(op or [])) as progress:
        for number, name in enumerate(names if tune else ()):
            progress(number / parts)
            for tuned in bench.tune_and_save(name, timer):
                say.print(bench.tuned_line(tuned))
        peaks = bench.measure_peaks(timer)
        say.print(bench.header(peaks))
        for row in bench.measure(names, timer, peaks):
            rows.append(row)
            progress((parts - len(names) + names.index(row.op)) / parts)
            say.print(bench.line(row))
    if json:
        print_json(bench.document(peaks, rows))
    return ExitCode.DONE


@app.command()
def step(
    shape: Annotated[str, typer.Option(help="A well-known model's shape; its weights are random.")] = "qwen3-0.6b",
    layers: Annotated[int, typer.Option(min=0, help="Layers to keep, from the first; 0: all.")] = 0,
    tokens: Annotated[int, typer.Option(min=64, help="Tokens of a step, in one pass.")] = 16384,
    method: Annotated[str, typer.Option(metavar="lora|qlora", help="qlora: base weights in 4 bits (NF4).")] = "lora",
    quantize: Annotated[
        str, typer.Option(metavar="none|nf4|fp8", help="As in a recipe's model.quantize, instead of --method.")
    ] = "",
    products: Annotated[
        str,
        typer.Option(metavar="16|fp8|int8|mxfp8", help="As in a recipe's train.products, but not auto."),
    ] = "16",
    precision: Annotated[str, typer.Option(metavar="bf16|fp16|fp32", help="What to compute in.")] = "bf16",
    rank: Annotated[int, typer.Option(min=1, max=256, help="Rank of the adapter.")] = 16,
    expert_rank: Annotated[
        int, typer.Option(min=0, max=256, help="Rank of each expert's adapter; 0: as in a recipe.")
    ] = 0,
    targets: Annotated[
        str, typer.Option(help="Matrices with an adapter, as in a recipe's adapter.targets, with commas between.")
    ] = "auto",
    keep: Annotated[
        str,
        typer.Option(
            metavar="LEVEL[:LAYERS],...",
            help=f"What layers keep for the backward pass, from fastest to smallest: {', '.join(LEVEL_NAMES)}; such as "
            "narrow:27,products for 27 layers of one and the rest of the other, or offloaded+narrow:28 by turns.",
        ),
    ] = "products",
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed.")] = 24,
    warm_up: Annotated[int, typer.Option(min=2, help="Steps before them.")] = 4,
    head_rows: Annotated[int, typer.Option(min=64, help="Rows of a chunk of the head.")] = 4096,
    eager: Annotated[bool, typer.Option("--eager", help="Without CUDA graphs.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time goes.")] = False,
    device: Annotated[str, typer.Option(metavar="cuda|cpu", help="Where.")] = "cuda",
    packs: Annotated[Path | None, typer.Option(help="Passes recorded by `python tests/bench peer_step`.")] = None,
    mlp_rows: Annotated[int, typer.Option(min=0, help="Tokens that pass the feed-forward at once; 0: all.")] = 0,
    tables_on_host: Annotated[
        bool, typer.Option("--tables-on-host", help="Embeddings and head stay in host memory.")
    ] = False,
    weights: Annotated[
        str,
        typer.Option(help="Where layers keep frozen weights, from the first: card, host, ranks, such as card+host:36."),
    ] = "card",
    one_document: Annotated[
        bool, typer.Option("--one-document", help="Each pass is one document as long as it.")
    ] = False,
    serial_offload: Annotated[
        bool, typer.Option("--serial-offload", help="Wait for every copy to or from host memory, for comparison.")
    ] = False,
    budget_gib: Annotated[
        float, typer.Option(min=0.0, help="Choose the memory plan for so much of the device, instead of --keep.")
    ] = 0.0,
    optimizer: Annotated[str, typer.Option(help="As in a recipe's train.optimizer.")] = "adamw",
    masking: Annotated[str, typer.Option(help="As in a recipe's masking.kind.")] = "off",
    objective: Annotated[
        str, typer.Option(help="As in a recipe's preference.objective; the reference is known before the first step.")
    ] = "sft",
    passes_of: Annotated[
        str, typer.Option(help="With sft: learn the passes of that objective, to compare with it.")
    ] = "sft",
    gpus: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=MOST_GPUS,
            metavar="N",
            help="So many GPUs, a pass on each; may be repeated. Prints JSON lines.",
        ),
    ] = None,
    exchange: Annotated[
        str, typer.Option(metavar="whole|sliced|bf16", help="With --gpus: as in a recipe's devices.exchange.")
    ] = "whole",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Time the training step of a known shape.

    Its weights are random: nothing is downloaded, nothing is learned.
    """
    from burnish_engine.bench.shapes import CONFIGS

    if shape not in CONFIGS:
        raise UsageError(f"There is no shape {shape!r}.", f"Known are {', '.join(CONFIGS)}.")
    most = CONFIGS[shape]["num_hidden_layers"]
    if layers > most:
        raise UsageError(f"{shape} has {most} layers.", f"Give --layers of at most {most}.")
    _refuse_unknown(
        ("method", method, ("lora", "qlora")),
        ("quantize", quantize, ("", "none", "nf4", "fp8")),
        ("products", products, ("16", *EIGHT_BITS)),
        ("precision", precision, ("bf16", "fp16", "fp32")),
        ("device", device, ("cuda", "cpu")),
        ("optimizer", optimizer, get_args(Optimizer)),
        ("masking", masking, get_args(Masking)),
        ("objective", objective, _OF_ROWS),
        ("passes-of", passes_of, _OF_ROWS),
        ("exchange", exchange, ("whole", "sliced", "bf16")),
    )
    if one_document and packs:
        raise UsageError("--one-document and --packs both say what passes are.", "Leave out one of them.")
    if packs and {objective, passes_of} != {"sft"}:
        raise UsageError("--packs is for rows as they stand.", "Leave out --packs, or --objective and --passes-of.")
    from burnish_engine.bench.step_options import StepOptions, parse_keep, parse_weights

    if device == "cuda":
        from burnish_kernels.timer import why_not

        problem = why_not()
        if problem:
            raise SetupError(problem, "`burnish doctor` says what this machine has; --device cpu times the CPU.")
    options = StepOptions(
        shape=shape,
        layers=layers,
        tokens=tokens,
        method="qlora" if quantize == "nf4" else "lora" if quantize else method,
        fp8_stored=quantize == "fp8",
        products=products,
        rank=rank,
        expert_rank=expert_rank,
        targets=tuple(name.strip() for name in targets.split(",")),
        precision=precision,
        keep=parse_keep(keep),
        steps=steps,
        warmup=warm_up,
        head_rows=head_rows,
        graphs=not eager,
        device=device,
        packs=packs,
        mlp_rows=mlp_rows,
        tables_on_host=tables_on_host,
        weights=parse_weights(weights, layers or most),
        one_document=one_document,
        serial_offload=serial_offload,
        budget_gib=budget_gib,
        optimizer=cast("Optimizer", optimizer),
        masking=cast("Masking", masking),
        objective=cast("Objective", objective),
        passes_of=cast("Objective", passes_of),
        exchange=exchange,
    )
    with announced("step", shape) as progress:
        if gpus:
            if profile:
                raise UsageError("--profile is for one GPU.", "Leave out --profile or --gpus.")
            return _time_shared(options, gpus, progress)
        report = _time_alone(options, progress, profile=profile)
    _print_report(report, json=json)
    return ExitCode.DONE


def _time_alone(options: StepOptions, progress: Callable[[float], object], *, profile: bool) -> dict[str, Any]:
    """Time the step on one device."""
    from burnish_engine.bench.step import StepBench

    bench = StepBench(options)
    report = bench.run(progress)
    if profile:
        report["profile_ms"] = bench.profile()
    return report


def _refuse_unknown(*options: tuple[str, str, Sequence[str]]) -> None:
    """Refuse the first option that has none of its values; each is a name, what was given, and what is known."""
    for name, value, known in options:
        if value not in known:
            raise UsageError(f"--{name} is {value!r}.", f"Give one of {', '.join(known)}.")


def _time_shared(options: StepOptions, gpus: Sequence[int], progress: Callable[[float], object]) -> ExitCode:
    """Time the step on each number of GPUs."""
    from burnish_engine.bench.shared_step import shared_steps

    for row in shared_steps([options], gpus, progress):
        print_json(dumps(row))
    return ExitCode.DONE


def _print_report(report: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(dumps(report))
        return
    for key, value in report.items():
        if not isinstance(value, dict):
            out.print(f"{key:20} {value:.4g}" if isinstance(value, float) else f"{key:20} {value}")
            continue
        out.print(key)
        for name, part in value.items():
            out.print(f"    {name:60} {part:9.3f}")


def _warn_of_company() -> None:
    from burnish_engine.hardware.gpu.visible import lease_name_of
    from burnish_engine.runs.jobs.lease import holder_of

    run = holder_of(lease_name_of(0))
    if run is not None:
        err.note(f"the run {run} is using this GPU, so these times are too long.")


@app.command()
def gguf(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="GGUF files, or folders of them.")],
    threads: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Threads; may be repeated. Default: 1, 2, 4 ... all cores."),
    ] = None,
    prompt: Annotated[int, typer.Option(min=8, help="Tokens of the prompt.")] = 512,
    generate: Annotated[int, typer.Option(min=4, help="Tokens to generate.")] = 64,
    repeat: Annotated[int, typer.Option(min=1, help="How often; medians are told.")] = 3,
    phone: Annotated[
        list[Path] | None,
        typer.Option(metavar="JSON", help="What `llama-bench -o json` measured on a phone, to show beside."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Time exported files on this machine's processor.

    llama.cpp runs them, and what they would take on a phone is computed. Load time, time to the first token, tokens a
    second for prompt and reply, and peak memory, each file in a process of its own.
    """
    from burnish_engine.bench import gguf as bench_gguf
    from burnish_engine.bench.gguf_result import read_llama_bench
    from burnish_engine.bench.progress import part_of
    from burnish_engine.cli.machine.bench_gguf import show_benches

    measured = [one for path in phone or () for one in read_llama_bench(path)]
    found = bench_gguf.gguf_files(files)
    say = err if json else out
    counts, results = threads or bench_gguf.usual_threads(), []
    with announced("gguf", ", ".join(path.name for path in found)) as progress:
        for number, path in enumerate(found):
            say.print(f"Timing {path.name}...")
            results.append(
                bench_gguf.bench_file(
                    path,
                    counts,
                    prompt=prompt,
                    generate=generate,
                    repeat=repeat,
                    progress=part_of(progress, number, len(found)),
                )
            )
    if json:
        documents = [one.model_dump(mode="json") for one in results]
        print_json(dumps({"files": documents, "phone": [one.model_dump(mode="json") for one in measured]}))
        return ExitCode.DONE
    show_benches(found, results, measured)
    return ExitCode.DONE
