"""A rank other than the leader: it holds a replica of the leader's engine and does what the leader says.

Orders and answers, each a JSON object:

| order (`do`) | with | answer |
|---|---|---|
| load | what the replica is made from, plan | plan |
| plan | plan | plan |
| start | position; tensors: weights, optimizer state, references | checksum of the weights |
| step | | `ready` when the rank's passes are queued; the leader answers `exchange` or `abandon` |
| checksum | | checksum of the weights |
| time | bytes | milliseconds of one exchange of so many |
| close | | none: the process ends |

An answer with `failed` says what went wrong: `memory`, which leaves the replica as it was before the order, or `error`,
after which the rank ends. Once the leader is gone, the process ends at once, whatever it waits for.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.parallel.collectives import Collectives
from burnish_engine.train.parallel.link import Link, LinkLostError, Message
from burnish_engine.train.parallel.rank_exchange import RankExchange
from burnish_engine.train.recovery.recovery import release, short_message

_Order = tuple[Message, dict[str, torch.Tensor]]


class AbandonedStepError(Exception):
    """The leader dropped the step, because some rank ran out of memory."""


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
        collectives: operations in which all ranks take part.
        orphaned: function called, in a thread, when the leader is gone.
    """

    def __init__(
        self,
        link: Link,
        rank: int,
        size: int,
        device: torch.device,
        collectives: Collectives,
        orphaned: Callable[[], object] = lambda: os._exit(ExitCode.STOPPED),
    ) -> None:
        self._link, self._rank, self._size = link, rank, size
        self._device, self._collectives, self._orphaned = device, collectives, orphaned
        self._orders: queue.Queue[_Order] = queue.Queue()
        self._closing = False

    def exchange(self, *, exact: bool) -> RankExchange:
        """Make the exchange that this rank's trainer takes part in."""
        return RankExchange(self._rank, self._size, self._collectives, exact=exact, agree=self._agree)

    def serve(self, replica: Replica) -> ExitCode:
        """Carry out orders until the leader closes.

        Args:
            replica: what this rank trains.
        """
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        try:
            while True:
                order, tensors = self._orders.get()
                if order["do"] == "close":
                    return ExitCode.DONE
                try:
                    self._obey(replica, order, tensors)
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

    def _obey(self, replica: Replica, order: Message, tensors: dict[str, torch.Tensor]) -> None:
        name, answer = order["do"], dict[str, Any]()
        if name == "step":
            try:
                replica.step()
            except AbandonedStepError:
                release(self._device)
            return
        if name in ("exchange", "abandon"):
            return  # the verdict on a step that failed here
        if name == "load":
            answer = replica.load(order)
        elif name == "plan":
            replica.use_plan(order["plan"])
        elif name == "start":
            replica.start(order, tensors)
            answer = {"checksum": replica.checksum()}
        elif name == "checksum":
            answer = {"checksum": replica.checksum()}
        elif name == "time":
            self._time(order)
        else:
            raise ValueError(f"unknown order {name!r}")
        self._link.send(answer)

    def _agree(self) -> None:
        self._link.send({"ready": True})
        verdict, _ = self._orders.get()
        if verdict["do"] == "close":
            raise LinkLostError("the leader closed within a step")
        if verdict["do"] != "exchange":
            raise AbandonedStepError

    def _time(self, order: Message) -> None:
        """Take part in the leader's measurement of exchanges."""
        values = torch.zeros(order["bytes"] // 4, dtype=torch.float32, device=self._device)
        for _ in range(order["repeats"]):
            self._collectives.all_reduce(values)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _report(self, error: BaseException) -> None:
        traceback.print_exception(error)
        code = error.exit_code if isinstance(error, BurnishError) else ExitCode.BUG
        text = str(error) if isinstance(error, BurnishError) else f"{type(error).__name__}: {error}"
        try:
            self._link.send({"failed": "error", "message": text, "code": int(code)})
        except LinkLostError:
            return
