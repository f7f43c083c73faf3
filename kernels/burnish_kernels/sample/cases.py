"""Test cases, compilations and benchmarks of choosing tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.sample.rows import ReplyRows, SamplingRows

# How far a draw may lie outside the chosen token's part of the cumulated shares: sums in fp32.
TOLERANCE = 1e-4
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
RULES: list[tuple[float, float, float, int]] = [
    (0.0, 1.0, 0.0, 0),
    (1.0, 1.0, 0.0, 0),
    (0.7, 0.9, 0.0, 0),
    (1.3, 1.0, 0.0, 5),
    (1.0, 0.8, 0.0, 20),
    (1.0, 1.0, 0.2, 0),
    (2.0, 0.95, 0.05, 40),
    (1.0, 1e-6, 0.0, 0),
]
"""Temperature, top-p, min-p and top-k of one row each."""


def cases() -> list[Case]:
    """List types, vocabularies around a block, strided rows, slots in another order, soft caps, ties."""
    found = []
    for dtype in TYPES:
        found += [
            _case(300, dtype),
            _case(5000, dtype, padding=24, slots=True),
            _case(97, dtype, softcap=3.0, tied=True),
            _case(151_936, dtype, slots=True, gpu_only=True),
        ]
    return found


def _case(
    vocabulary: int,
    dtype: torch.dtype,
    *,
    padding: int = 0,
    slots: bool = False,
    softcap: float | None = None,
    tied: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = [str(vocabulary), str(dtype).removeprefix("torch."), *["slots"] * slots, *["tied"] * tied]
    options: dict[str, Any] = {"vocabulary": vocabulary, "dtype": dtype, "padding": padding, "slots": slots}
    return Case("-".join(words), TOLERANCE, options | {"softcap": softcap, "tied": tied}, gpu_only)


def choice_of(rules: list[tuple[float, float, float, int]], device: str) -> SamplingRows:
    """Make the choice of a list of temperature, top-p, min-p and top-k."""
    temperature, top_p, min_p, top_k = torch.tensor(rules, dtype=torch.float32, device=device).t().contiguous()
    seed = torch.arange(len(rules), device=device) * 7919 + 2**40
    return SamplingRows(temperature, top_p, min_p, top_k.int(), seed)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return how far a draw lies outside the chosen token's part of the cumulated shares, at most.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The distance; infinite where a greedy row chose another token than the first largest.
    """
    from burnish_kernels.sample import op, reference

    options = case.options
    dtype, vocabulary = options["dtype"], options["vocabulary"]
    rules = RULES * 2
    rows = len(rules)
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, vocabulary + options["padding"], generator=generator) * 2).to(dtype)
    if options["tied"]:
        logits = logits.round()
    logits = logits[:, :vocabulary]
    choice = choice_of(rules, device)
    count = torch.arange(rows, dtype=torch.int32, device=device) + 5
    order = torch.randperm(rows, generator=generator) if options["slots"] else torch.arange(rows)
    slots = order.int().to(device) if options["slots"] else None
    given = logits.to(device) if device != "cpu" else logits
    chosen = op.choose(given, choice, count, slots_B=slots, softcap=options["softcap"]).tolist()
    exact = logits.float()
    if options["softcap"]:
        exact = options["softcap"] * torch.tanh(exact / options["softcap"])
    worst = 0.0
    for row, slot in enumerate(order.tolist()):
        temperature, *others = rules[slot]
        if not temperature:
            if chosen[row] != int(logits[row].argmax()):
                return math.inf
            continue
        cumulated = reference.shares(exact[row], temperature, *others).cumsum(0)
        drawn = reference.uniform(int(choice.seed[slot]), int(count[slot]))
        before = float(cumulated[chosen[row] - 1]) if chosen[row] else 0.0
        worst = max(worst, before - drawn, drawn - float(cumulated[chosen[row]]))
    return worst


def compilations() -> list[Compilation]:
    """List the choice for each type with and without a soft cap, and the record."""
    from burnish_kernels.sample import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for switch in (False, True):
            shift, chunks = kernel.SHIFT[dtype], 38
            whole: dict[str, Any] = {"HAS_SLOTS": switch, "HAS_CAP": switch, "SHIFT": shift, "CHUNKS": chunks}
            whole |= {"BLOCK_C": 64, "BLOCK": kernel.BLOCK, "DRAWS": True, "HAS_LEAST": switch}
            steps = -(-(32 - shift) // 4)
            for name, own in {
                "peaks": {},
                "search": {"STEP": 1, "STEPS": steps, "COUNTS": switch},
                "mass": {},
                "draw": {},
            }.items():
                function = getattr(kernel, f"{name}_kernel")
                constants = {key: value for key, value in (whole | own).items() if key in function.arg_names}
                signature = {
                    argument: _type(argument, pointer, counts=switch)
                    for argument in function.arg_names
                    if argument not in constants
                }
                word = f"{name}-{pointer[1:]}{'-slots' * switch}"
                found.append(Compilation(word, function, signature, constants, kernel.WARPS))
    pointers = {name: "*i32" for name in kernel.record_kernel.arg_names if name.endswith("_ptr")}
    signature = pointers | {"tokens_ptr": "*i64", "ids_ptr": "*i64"}
    signature |= dict.fromkeys(("B", "stops", "recent_stride"), "i32")
    for switch in (False, True):
        constants = {"HAS_SLOTS": switch, "RECENT": 64, "BLOCK_B": 64}
        found.append(Compilation(f"record{'-slots' * switch}", kernel.record_kernel, signature, constants, 4))
    return found


def _type(argument: str, pointer: str, *, counts: bool) -> str:
    known = {"logits_ptr": pointer, "seed_ptr": "*i64", "chosen_ptr": "*i64", "softcap": "fp32"}
    known |= dict.fromkeys(("V", "logits_stride"), "i32") | {"wanted_ptr": "*i32" if counts else "*fp32"}
    known |= dict.fromkeys(("places_ptr", "slots_ptr", "least_ptr", "found_ptr", "count_ptr"), "*i32")
    return known.get(argument, "*fp32")


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List greedy and drawn tokens of one and of 64 rows of Qwen3's vocabulary, and the record of 64."""
    from burnish_kernels.sample import op

    for rows in (1, 64):
        logits = torch.randn(rows, 151_936, device=device).bfloat16()
        count = torch.ones(rows, dtype=torch.int32, device=device)
        for name, rule in {"greedy": RULES[0], "drawn": RULES[1], "top-p": RULES[2]}.items():
            choice = choice_of([rule] * rows, device)

            def run(
                logits: torch.Tensor = logits, choice: SamplingRows = choice, count: torch.Tensor = count
            ) -> object:
                return op.choose(logits, choice, count, draws=name != "greedy", bounds=name == "top-p")  # noqa: B023

            plain = (lambda logits=logits: logits.argmax(dim=1)) if name == "greedy" else None
            yield Benchmark(f"{name}-{rows}", run, plain, logits.nbytes)
    numbers = dict.fromkeys(
        ("place", "length", "made", "limit", "live"), torch.ones(64, dtype=torch.int32, device=device)
    )
    recent = torch.zeros(64, 64, dtype=torch.int32, device=device)
    state = ReplyRows(ids=torch.ones(64, dtype=torch.int64, device=device), recent=recent, **numbers)
    tokens, stops = torch.ones_like(state.ids), torch.zeros(4, dtype=torch.int32, device=device)
    yield Benchmark("record-64", lambda: op.record(tokens, state, stops), None, 64 * 40)
