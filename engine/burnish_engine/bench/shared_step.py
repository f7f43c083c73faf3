"""Measure steps that several GPUs share, against one GPU and against what the interconnect advice expects.

The processes, their agreement before each exchange, and the exchange itself are those of a run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from burnish_engine.bench.progress import part_of
from burnish_engine.bench.step import StepBench
from burnish_engine.bench.step_options import StepOptions
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.hardware.gpu.interconnect import exchange_ms
from burnish_engine.hardware.probe import probe
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.exchange.rank_memory import RankWindows
from burnish_engine.train.fast.prefetch import Prefetcher
from burnish_engine.train.parallel.launch import started_ranks
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.rank_server import RankServer, Replica
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.parallel.replica import state_of, take_state, weights_checksum
from burnish_engine.train.parallel.run_rank import join
from burnish_engine.train.recovery.recovery import release

_MODULE = "burnish_engine.bench.shared_step"
_REPEATS = 50  # exchanges that are timed


class BenchReplica(Replica):
    """Replica of a benchmark's trainer.

    Args:
        server: server that the replica's steps are agreed on with.
        device: device of this rank.
    """

    def __init__(self, server: RankServer, device: torch.device) -> None:
        self._server, self._device = server, device
        self._bench: StepBench | None = None
        self._prefetcher: Prefetcher | None = None

    @override
    def load(self, order: Message) -> Message:
        self.close()
        self._bench = None
        release(self._device)
        exchange, memory = self._server.exchange(exact=False), RankWindows(*self._server.place, self._server.meet)
        options = _options(order["options"], self._device)
        plan = MemoryPlan.model_validate_json(order["plan"])
        self._bench = StepBench(options, order["ranks"], exchange, memory=memory, plan=plan)
        return {}

    @override
    def use_plan(self, plan: str) -> None:
        raise NotImplementedError("a benchmark keeps the plan that it was loaded with")

    @override
    def start(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> None:
        bench = self._loaded
        take_state(bench.model, tensors)
        self._prefetcher = bench.prefetcher(order["step"], order["steps"])

    @override
    def step(self) -> None:
        assert self._prefetcher is not None
        self._loaded.step(self._prefetcher)
        for _ in self._loaded.trainer.results():
            pass

    @override
    def checksum(self) -> int:
        for _ in self._loaded.trainer.results(wait=True):
            pass
        return weights_checksum(self._loaded.model)

    @override
    def evaluate(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError("a benchmark evaluates nothing")

    @override
    def take_part(self, order: Message) -> None:
        raise NotImplementedError("a benchmark shares out no model")

    @override
    def close(self) -> None:
        if self._prefetcher:
            self._prefetcher.close()
            self._prefetcher = None

    @property
    def _loaded(self) -> StepBench:
        assert self._bench is not None
        return self._bench


def shared_steps(
    settings: Sequence[StepOptions],
    counts: Sequence[int],
    progress: Callable[[float], object] = lambda _share: None,
) -> Iterator[dict[str, Any]]:
    """Measure steps on each number of GPUs, with a pass of `StepOptions.tokens` tokens on each; yield a row for each.

    The processes for a number of GPUs are started once and measure one setting after another.

    Args:
        settings: settings of the measurements, all on one kind of device.
        counts: numbers of GPUs; where 1 is the first, the others' rows say how many times faster they are.
        progress: function that receives the share that is done.
    """
    alone: dict[int, float] = {}
    for turn, count in enumerate(counts):
        for number, row in enumerate(_measured(settings, count, part_of(progress, turn, len(counts)))):
            if count == 1:
                alone[number] = row["tok_s"]
            yield row | ({"times_one_gpu": row["tok_s"] / alone[number]} if number in alone else {})


def _measured(
    settings: Sequence[StepOptions], count: int, progress: Callable[[float], object]
) -> Iterator[dict[str, Any]]:
    kind = torch.device(settings[0].device)
    devices = [torch.device("cuda", index) if kind.type == "cuda" else kind for index in range(count)]
    with tempfile.TemporaryDirectory(prefix="burnish-") as logs, started_ranks(devices, Path(logs), _MODULE) as ranks:
        for number, options in enumerate(settings):
            if kind.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            part = part_of(progress, number, len(settings))
            row = _measure(options, ranks, part) if ranks else StepBench(options).run(part) | {"gpus": 1}
            if number:
                del row["first_step_s"]  # counted from the start of the process
            release(kind)
            yield row


def _measure(options: StepOptions, ranks: Ranks, progress: Callable[[float], object]) -> dict[str, Any]:
    count = ranks.size
    exchange = RankExchange(0, count, ranks.collectives, agree=ranks.agree, check=ranks.check)
    memory = RankWindows(0, count, ranks.collectives, partial(ranks.agree, more=True))

    def load(plan: MemoryPlan) -> None:  # all at once, with one plan
        ranks.begin({"do": "load", "options": _plain(options), "ranks": count, "plan": plan.model_dump_json()})

    bench = StepBench(options, count, exchange, ranks.begin_step, memory, planned=load)
    ranks.wait()
    order = {"do": "start", "step": 0, "steps": options.warmup + options.steps}
    answers = ranks.call(order, state_of(bench.model, None))
    ranks.require_equal(weights_checksum(bench.model), 0, answers)
    report = bench.run(progress)
    ranks.require_equal(weights_checksum(bench.model), options.warmup + options.steps)
    gradient = bench.model.optimizer.grad
    measured = 1000 * ranks.time_exchange(gradient.nbytes, gradient.device, _REPEATS)
    expected = expected_exchange_ms(probe(), count, gradient.nbytes) if gradient.device.type == "cuda" else None
    return report | {
        "gpus": count,
        "exchange": options.exchange,
        "gradient_mb": gradient.nbytes / 1e6,
        "exchange_ms": measured,
        "exchange_gb_s": gradient.nbytes / measured / 1e6,
        "expected_exchange_ms": expected,
        "exchange_share": measured / report["step_ms"],
        "nccl": {name: value for name, value in os.environ.items() if name.startswith("NCCL_")},
    }


def expected_exchange_ms(machine: MachineFacts, count: int, size: int) -> float | None:
    """Predict the milliseconds of an exchange among the first GPUs of a machine; None where it has fewer.

    With NCCL_P2P_DISABLE=1 the prediction is for GPUs that cannot read each other's memory.

    Args:
        machine: facts of the machine.
        count: number of GPUs.
        size: bytes of the gradients in fp32.
    """
    if os.environ.get("NCCL_P2P_DISABLE") == "1":
        machine = machine.model_copy(update={"links": [], "all_reduce_gb_s": None, "exchanges": []})
    return exchange_ms(machine, range(count), size) if count <= len(machine.gpus) else None


def _plain(options: StepOptions) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}


def _options(plain: dict[str, Any], device: torch.device) -> StepOptions:
    found = StepOptions(**plain)
    packs = Path(found.packs) if found.packs else None
    return replace(found, keep=tuple(found.keep), weights=tuple(found.weights), packs=packs, device=str(device))


if __name__ == "__main__":
    os._exit(join(BenchReplica))
