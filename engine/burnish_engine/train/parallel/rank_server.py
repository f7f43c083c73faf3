"""A rank other than the leader: it holds a replica of the leader's engine and does what the leader says.

Orders and answers, each a JSON object:

| order (`do`) | with | answer |
|---|---|---|
| load | what the replica is made from, plan | plan; before, where layers are shared, as of a step, three times |
| plan | plan | plan |
| start | position; tensors: weights, optimizer state, references | checksum of the weights |
| step | | `ready` when the rank's passes are queued; the leader answers `exchange` or `abandon` |
| checksum | | checksum of the weights |
| evaluate | what to compute; tensors: this rank's documents | as of a step |
| part | what the leader does with a model that is shared out | none |
| errors | | as of a step; all ranks gather what rounding left out |
| time | bytes, repeats | `ready` and `exchange` as in a step; after so many exchanges an empty one |
| close | | none: the process ends |

An answer with `failed` says what went wrong: `memory`, which leaves the replica as it was before the order, or `error`,
after which the rank ends. Where memory runs out after the exchange, in the update, nobody waits for an answer: the rank
is behind, and `memory` is its answer to the next step or checksum, until the leader begins anew (`start`). Once the
leader is gone, the process ends at once, whatever it waits for.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import torch

from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.base.engine import HalfUpdatedError
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.parallel.link import Link, LinkLostError, Message
from burnish_engine.train.recovery.recovery import release, short_message

_Order = tuple[Message, dict[str, torch.Tensor]]


class AbandonedStepError(Exception):
    """The leader dropped the step, or loading, because some rank ran out of memory."""


class Replica(Protocol):
    """An engine of a run, or a trainer of a benchmark, on a rank other than the leader."""

    def load(self, order: Message) -> Message:
        """Load the model, letting go of the one before first; return what the leader should know."""
        ...

    def use_plan(self, plan: str) -> None:
        """Switch to a memory plan; `start` follows."""
        ...

    def start(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take over weights and optimizer state, and get ready for the next step."""
        ...

    def step(self) -> None:
        """Queue one step."""
        ...

    def checksum(self) -> int:
        """Compute the checksum of the weights after all queued steps."""
        ...

    def evaluate(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Compute a share of an evaluation; see `evaluate_share`."""
        ...

    def take_part(self, order: Message) -> None:
        """Do what the leader does with a model that is shared out."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class RankServer:
    """Carries out the leader's orders.

    Args:
        link: connection to the leader.
        rank: number of this rank.
        size: number of ranks.
        device: device of this rank.
        connect: function that makes the operations in which all ranks take part; it waits until all ranks do so.
        orphaned: function called, in a thread, when the leader is gone. Where it returns, `serve` ends.
    """

    def __init__(
        self,
        link: Link,
        rank: int,
        size: int,
        device: torch.device,
        connect: Callable[[], Collectives],
        orphaned: Callable[[], object] = lambda: os._exit(ExitCode.STOPPED),
    ) -> None:
        self._link, self._rank, self._size = link, rank, size
        self._device, self._connect, self._orphaned = device, connect, orphaned
        self._collectives: Collectives | None = None
        self._orders: queue.Queue[_Order] = queue.Queue()
        self._closing = self._exchanged = False
        self._shared: RankExchange | None = None
        self._behind = ""  # why the update after the newest exchange was not made

    @property
    def place(self) -> tuple[int, int, Collectives]:
        """Number of this rank, number of ranks, and the operations in which all take part."""
        assert self._collectives is not None
        return self._rank, self._size, self._collectives

    def meet(self) -> None:
        """Wait, in a step or in loading, until all ranks are there.

        Raises:
            AbandonedStepError: Some rank ran out of memory.
        """
        self._agree()

    def exchange(self, *, exact: bool) -> RankExchange:
        """Make the exchange that this rank's trainer takes part in."""
        self._shared = RankExchange(self._rank, self._size, self._collectives, exact=exact, agree=self._agree)
        return self._shared

    def serve(self, replica: Replica) -> ExitCode:
        """Carry out orders until the leader closes.

        Args:
            replica: what this rank trains.
        """
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        try:
            self._collectives = self._connect()
            while True:
                order, tensors = self._orders.get()
                if order["do"] == "close":
                    return ExitCode.DONE
                try:
                    self._obey(replica, order, tensors)
                except AbandonedStepError:
                    release(self._device)
                except MEMORY_ERRORS as error:
                    if not is_out_of_memory(error):
                        raise
                    self._link.send({"failed": "memory", "message": short_message(error)})
                    traceback.clear_frames(error.__traceback__)
                    del error
                    release(self._device)
        except LinkLostError:
            return ExitCode.STOPPED
        except Exception as error:  # noqa: BLE001  whatever it is, the leader shall say it
            self._report(error)
            return ExitCode.BUG
        finally:
            self._closing = True
            replica.close()
            if self._collectives:
                self._collectives.close()
            self._link.close()

    def _read(self) -> None:
        """Queue the leader's orders; a thread, so that the leader's end is noticed whatever the rank waits for."""
        try:
            while not self._closing:
                order = self._link.receive()
                self._closing = order[0].get("do") == "close"
                self._orders.put(order)
        except LinkLostError:
            if not self._closing:
                self._orphaned()
                self._orders.put(({"do": "close"}, {}))

    def _obey(self, replica: Replica, order: Message, tensors: dict[str, torch.Tensor]) -> None:
        name, answer = order["do"], dict[str, Any]()
        if name == "step":
            return self._step(replica)
        if name in ("exchange", "abandon"):
            return None  # the verdict on a step that failed here
        if name == "load":
            answer = replica.load(order)
        elif name == "plan":
            replica.use_plan(order["plan"])
        elif name == "start":
            replica.start(order, tensors)
            self._behind = ""
            answer = {"checksum": replica.checksum()}
        elif name == "checksum":
            if self._behind:
                raise MemoryError(self._behind)
            answer = {"checksum": replica.checksum()}
        elif name == "time":
            return self._time(order)
        elif name == "evaluate":
            return self._evaluate(replica, order, tensors)
        elif name == "part":
            return replica.take_part(order)
        elif name == "errors":
            assert self._shared is not None
            with suppress(AbandonedStepError):
                self._shared.gather_errors()
            return None
        else:
            raise ValueError(f"unknown order {name!r}")
        return self._link.send(answer)

    def _step(self, replica: Replica) -> None:
        if self._behind:
            raise MemoryError(self._behind)
        self._exchanged = False
        try:
            replica.step()
        except (HalfUpdatedError, *MEMORY_ERRORS) as error:
            of_memory = isinstance(error, HalfUpdatedError) or is_out_of_memory(error)
            if not (self._exchanged and of_memory):
                raise
            self._behind = short_message(error)
            traceback.clear_frames(error.__traceback__)
            del error
            release(self._device)

    def _agree(self) -> None:
        self._link.send({"ready": True})
        verdict, _ = self._orders.get()
        if verdict["do"] == "close":
            raise LinkLostError("the leader closed within a step")
        if verdict["do"] != "exchange":
            raise AbandonedStepError
        self._exchanged = True

    def _evaluate(self, replica: Replica, order: Message, tensors: Mapping[str, torch.Tensor]) -> None:
        if self._behind:
            raise MemoryError(self._behind)
        assert self._shared is not None
        values = replica.evaluate(order, tensors)
        with suppress(AbandonedStepError):
            self._shared.add_up(values)

    def _time(self, order: Message) -> None:
        """Take part in the leader's measurement of exchanges."""
        assert self._collectives is not None
        values = torch.zeros(order["bytes"] // 4, dtype=torch.float32, device=self._device)
        try:
            self._agree()
        except AbandonedStepError:
            return
        for _ in range(order["repeats"]):
            self._collectives.all_reduce(values)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._link.send({})

    def _report(self, error: BaseException) -> None:
        traceback.print_exception(error)
        code = error.exit_code if isinstance(error, BurnishError) else ExitCode.BUG
        text = str(error) if isinstance(error, BurnishError) else f"{type(error).__name__}: {error}"
        try:
            self._link.send({"failed": "error", "message": text, "code": int(code)})
        except LinkLostError:
            return
