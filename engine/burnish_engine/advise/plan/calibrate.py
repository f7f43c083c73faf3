"""Corrects predictions by what past runs on this device took. Loads no torch.

Sizes of tensors stay as counted. The correction applies to what cannot be counted (the context, kernels, what the
allocator holds beyond its tensors) and to the speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, median_high

from burnish_engine.advise.facts.past_runs import PastRun, past_runs
from burnish_engine.advise.facts.planned_run import PlannedRun
from burnish_engine.contract.facts.advice import MemoryPart, PlanBasis
from burnish_engine.contract.version import burnish_version

BESIDE_TORCH = frozenset({"CUDA context", "libraries"})
"""Names of the parts that the process holds beside torch's allocator."""
SLACK = frozenset({"allocator", "fragmentation", "graph pools"})
"""Names of the parts that torch's allocator holds beyond its tensors."""

_PAGED = "paged"
_PRODUCTS = {"": "", "fp8": "8-bit products"}  # files of past runs have these
_LEAST_RUNS = 2  # one may have been a bad moment
_NEWEST = 8  # drivers, libraries and other programs change
_MIB, _GIB = 2**20, 2**30
# A measurement beyond these says more about the measuring than about the device.
_HELD_RANGE = (0.85, 1.5)  # measured / predicted of what the allocator, or the process, holds
_CONTEXT_RANGE = (128 * _MIB, 3 * _GIB)
_SPEED_RANGE = (0.01, 5.0)
_TIME_RANGE = (0.05, 50.0)  # measured / predicted time of a part beside the steps
_ALIKE = 0.05  # so far may predicted speeds be apart for runs of the same shape: model, adapter and pass decide it


@dataclass(frozen=True)
class Calibration:
    """The correction factors that past runs on a device give."""

    memory_runs: int = 0  # number of runs that correct the memory; 0: no correction
    held: float = 1.0  # measured / predicted bytes of torch's allocator; without torch's figures, of the process
    by_torch: bool = True  # whether `held` is for torch's allocator
    context_bytes: int | None = None  # bytes that the process holds beside torch; None where not known
    speed_runs: int = 0  # number of runs that correct the speed; 0: no correction
    speed: float = 1.0  # measured / predicted speed
    is_alike: bool = False  # whether the speed is that of the newest run of the same shape alone
    times: Mapping[str, float] = field(default_factory=dict)  # measured / predicted time, by part beside the steps
    loading_s: float = 0.0  # time that the newest run of the same shape took to load its model; 0: not known

    @property
    def runs(self) -> int:
        """The number of runs that the calibration is from."""
        return max(self.memory_runs, self.speed_runs)


@dataclass(frozen=True)
class CorrectedPrediction:
    """A prediction after its correction."""

    parts: list[MemoryPart]  # components of the memory peak
    tokens_per_s: float  # predicted speed
    found: Calibration  # what corrected it
    basis: PlanBasis  # prediction before the correction
    notes: list[str]  # description of the correction, in sentences


def calibration(device: str, engine: str, kind: str, tokens_per_s: float = 0.0) -> Calibration:
    """Compare predictions of this version with measurements of past runs on a device.

    The speed is that of the newest run of the same shape, where there is one; else the median of runs of the kind.

    Args:
        device: name of the device, from `device_key`.
        engine: name of the engine, "fast" or "plain".
        kind: kind of the run, from `kind_of`. Where too few runs are of this kind, runs of any kind correct the memory,
            but not the speed.
        tokens_per_s: predicted speed, which tells the shape of the run; 0: runs of any shape correct it.
    """
    version = burnish_version()
    known = [run for run in past_runs() if (run.device, run.engine, run.burnish) == (device, engine, version)]
    alike = [run for run in known if run.kind == kind]
    timed = [run for run in alike if run.measured_tokens_per_s][-_NEWEST:]
    last = next((run for run in reversed(timed) if abs(run.tokens_per_s - tokens_per_s) < _ALIKE * tokens_per_s), None)
    chosen = [last] if last is not None else timed
    speeds = [run.measured_tokens_per_s / run.tokens_per_s for run in chosen if run.measured_tokens_per_s]
    enough = len(speeds) >= _LEAST_RUNS or last is not None
    # Pages of a paged optimizer come and go beside torch, so such runs do not count for other kinds.
    measured = _measured(alike) or _measured([run for run in known if _PAGED not in run.kind])
    by_torch = all(run.reserved_bytes for run in measured)
    ratios = [_held_ratio(run, by_torch=by_torch) for run in measured]
    beside = [run.process_bytes - run.reserved_bytes for run in measured if run.process_bytes and by_torch]
    return Calibration(
        memory_runs=len(measured),
        # Of two values in the middle the upper one: a run that takes more than predicted fails, less costs nothing.
        held=_within(_HELD_RANGE, median_high(ratios)) if ratios else 1.0,
        by_torch=by_torch,
        context_bytes=int(_within(_CONTEXT_RANGE, median_high(beside))) if len(beside) >= _LEAST_RUNS else None,
        speed_runs=len(speeds) if enough else 0,
        speed=_within(_SPEED_RANGE, median(speeds)) if enough else 1.0,
        is_alike=last is not None,
        times=_time_ratios(last or next((run for run in reversed(alike) if run.times), None)),
        loading_s=last.times.get("loading", (0.0, 0.0))[1] if last is not None else 0.0,
    )


def _time_ratios(run: PastRun | None) -> dict[str, float]:
    times = run.times.items() if run is not None else ()
    return {name: _within(_TIME_RANGE, took / planned) for name, (planned, took) in times if planned > 0 and took > 0}


def correct_prediction(run: PlannedRun, parts: Sequence[MemoryPart], tokens_per_s: float) -> CorrectedPrediction:
    """Correct a prediction by past runs on this device.

    Args:
        run: the planned run.
        parts: predicted components of the peak.
        tokens_per_s: predicted speed.
    """
    device, engine, kind = device_key(run), "fast" if run.engine.fast else "plain", kind_of(run)
    found = calibration(device, engine, kind, tokens_per_s)
    basis = PlanBasis(
        device=device,
        engine="fast" if run.engine.fast else "plain",
        kind=kind,
        memory={part.name: part.bytes for part in parts},
        tokens_per_s=tokens_per_s,
        runs=found.runs,
    )
    after = correct_parts(parts, found)
    change = sum(part.bytes for part in after) / max(sum(part.bytes for part in parts), 1) - 1
    return CorrectedPrediction(after, tokens_per_s * found.speed, found, basis, _notes(found, change, tokens_per_s))


def correct_parts(parts: Sequence[MemoryPart], found: Calibration) -> list[MemoryPart]:
    """Correct the components of a peak that are not tensors; the sum is never less than the tensors.

    Args:
        parts: predicted components.
        found: correction factors.
    """
    if not found.memory_runs:
        return list(parts)
    loose = SLACK if found.by_torch else SLACK | BESIDE_TORCH
    fixed = frozenset() if not found.by_torch else BESIDE_TORCH
    held = sum(part.bytes for part in parts if part.name not in fixed)
    before = sum(part.bytes for part in parts if part.name in loose)
    after = max(0, round(held * found.held) - (held - before))
    made = []
    for part in parts:
        size, note = part.bytes, part.note
        if part.name in loose:
            size = round(after * part.bytes / before) if before else after
        elif part.name in fixed and found.context_bytes is not None:
            size = found.context_bytes
        if size != part.bytes:
            note = f"{note}; " * bool(note) + "as measured here"
        made.append(part.model_copy(update={"bytes": size, "note": note}))
    if not before and after and not any(part.name in loose for part in parts):
        made.append(MemoryPart(name="allocator", bytes=after, note="as measured here"))
    return made


def room_for_prediction(run: PlannedRun, room: int, beside: int) -> int:
    """Find the largest prediction that fits into a room after its correction, bytes.

    Args:
        run: the planned run.
        room: bytes that the process may take.
        beside: predicted bytes beside torch, the parts `BESIDE_TORCH`.
    """
    found = calibration(device_key(run), "fast" if run.engine.fast else "plain", kind_of(run))
    if not found.memory_runs:
        return room
    most = max(found.held, 1.0)  # where less was held than predicted, all of it may be tensors
    if not found.by_torch:
        return int(room / most)
    context = beside if found.context_bytes is None else found.context_bytes
    return int(max(0, room - context) / most) + beside


def device_key(run: PlannedRun) -> str:
    """The name that a device's past runs are kept under; equal devices share it."""
    gpu = run.device.gpu(run.machine)
    if gpu is None and run.device.cuda:
        return "unknown GPU"
    if gpu is None:
        return f"CPU: {run.machine.cpu}, {run.machine.cpu_cores} cores"[:200]
    return f"{gpu.name}, {gpu.vram_total_bytes / _GIB:.0f} GiB"[:200]


def kind_of(run: PlannedRun) -> str:
    """The kind of a run by precision, trained weights and GPUs, such as "bf16", "nf4 bf16" or "full bf16 x2"."""
    blocks = any(layer.blocks for layer in run.spec.layers)
    packed = "gguf" if blocks else "nf4" if run.engine.nf4 else run.engine.eight_bits.stored
    what = "full" if run.recipe.adapter.method == "full" else packed
    products = _PRODUCTS.get(run.engine.eight_bits.products, f"{run.engine.eight_bits.products.upper()} products")
    paged = _PAGED if run.recipe.train.optimizer.startswith(_PAGED) else ""
    devices = run.recipe.devices
    gpus = f"x{len(devices.gpus)}" if devices.shares and len(devices.gpus) > 1 else ""
    return " ".join(word for word in (what, run.device.precision, products, paged, gpus) if word)


def _measured(runs: Sequence[PastRun]) -> list[PastRun]:
    """Choose the newest runs whose memory is known, by torch's figures where enough have them; none where too few do.

    On a CPU only the process's memory is known.
    """
    by_torch = [run for run in runs if run.reserved_bytes][-_NEWEST:]
    by_process = [run for run in runs if run.process_bytes][-_NEWEST:]
    return next((found for found in (by_torch, by_process) if len(found) >= _LEAST_RUNS), [])


def _held_ratio(run: PastRun, *, by_torch: bool) -> float:
    outside = BESIDE_TORCH if by_torch else frozenset()
    predicted = sum(size for name, size in run.memory.items() if name not in outside)
    return (run.reserved_bytes if by_torch else run.process_bytes) / max(predicted, 1)


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _notes(found: Calibration, memory: float, tokens_per_s: float) -> list[str]:
    """Say what past runs changed.

    Args:
        found: what they gave.
        memory: change of the memory, as a share.
        tokens_per_s: predicted speed before the correction.
    """
    notes, changes = [], []
    if found.memory_runs:
        changes.append(f"memory {_change(memory)}")
    if found.speed_runs and not found.is_alike:
        changes.append(f"speed {_change(found.speed - 1)}")
    if changes:
        notes.append(f"Calibrated by {found.runs} runs on this device: {', '.join(changes)}.")
    if found.is_alike:
        speed = tokens_per_s * found.speed
        figure = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
        notes.append(f"The time is what the last run like this one took here, at {figure} tokens/s.")
    return notes


def _change(share: float) -> str:
    return f"{100 * share:+.0f} %" if abs(share) >= 0.005 else "as predicted"
