"""The leader's view of the other ranks: it tells them what to do, hears what came of it, and notices when one ends."""

from __future__ import annotations

import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

import torch

from burnish_engine.contract.errors import DriverError, ExitCode, SetupError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.run.endings import exit_text
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.parallel.link import Link, LinkLostError, Message

_CHECK_EVERY_S = 0.05
_END_S = 10.0  # for a process to end by itself
_LAST_LINES = 40  # lines of its log that are read
_UNTIMED = 5  # exchanges before those that are timed
_CONNECT_S = 300.0  # for all ranks to be connected by the collectives' library


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class RankLostError(DriverError):
    """A rank ended while it was needed; what the leader saved is intact."""


class RanksDifferError(DriverError):
    """Ranks that must hold the same weights do not."""


class OtherRankMemoryError(MemoryError):
    """Another rank ran out of memory."""


def lost_rank(number: int, process: subprocess.Popen[bytes] | None, log: Path | None) -> RankLostError:
    """Make the error that says how a rank ended, waiting a moment for it to have.

    Args:
        number: number of the rank.
        process: its process, where this one started it.
        log: file with its output, if there is one.
    """
    what = "the connection to it broke off"
    if process:
        lines = []
        with suppress(OSError):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:] if log else []
        with suppress(subprocess.TimeoutExpired):
            what = exit_text(process.wait(_END_S), lines)
    return RankLostError(
        f"The process of rank {number} ended ({what}).",
        "The run continues from its newest checkpoint with `burnish runs resume`, on as many GPUs as there are then.",
    )


def kill_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that is not over, and wait a while for its end: one that hangs in the driver may never end."""
    if process.poll() is None:
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


class Rank:
    """A rank other than the leader, with its process.

    Args:
        number: its number, from 1.
        link: connection to it.
        process: its process, where this one started it.
        log: file with its output; None where it goes elsewhere.
    """

    def __init__(
        self, number: int, link: Link, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
    ) -> None:
        self.number, self.link, self._process, self._log = number, link, process, log

    def lost(self) -> RankLostError:
        """Make the error that says how it ended, waiting a moment for it to have."""
        return lost_rank(self.number, self._process, self._log)

    def end(self, *, kill: bool) -> None:
        """Close the connection and end its process, at once or after it had time to end by itself."""
        self.link.close()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            if not kill:
                self._process.wait(_END_S)
        kill_process(self._process)


class Ranks:
    """All other ranks of a run, as the leader talks to them.

    Args:
        others: other ranks, in order of their numbers.
        connect: function that makes the collectives, which waits until all ranks do so.
        is_local: whether all are on this machine.
        gpus: GPU of each rank, the leader's first; none on CPUs.

    Attributes:
        size: number of ranks, the leader counted.
        is_local: whether all are on this machine.
        speeds: speed of each rank's GPU, bf16 TFLOP/s by the table; none where all are of one model.
        collectives: operations in which all ranks take part, the leader too.

    Raises:
        RankLostError: A rank ended before it was connected.
        SetupError: A rank could not be connected, or not all of them in time.
    """

    def __init__(
        self,
        others: list[Rank],
        connect: Callable[[], Collectives],
        *,
        is_local: bool = True,
        gpus: Sequence[GpuFacts] = (),
    ) -> None:
        self._others, self.is_local = others, is_local
        is_mixed = len({gpu.name for gpu in gpus}) > 1
        self.speeds = [gpu_rates(gpu).bf16_tflops for gpu in gpus] if is_mixed else []
        self.size = 1 + len(others)
        self._stepping = self._is_lost = False
        self._early: dict[int, Message] = {}  # answers of the step that came before they were waited for
        self._checked = 0.0
        try:
            self.collectives = self._connected(connect)
        except BaseException:
            for rank in others:
                rank.end(kill=True)
            raise

    def _connected(self, connect: Callable[[], Collectives]) -> Collectives:
        """Connect on a thread, which is left alone where a rank ends meanwhile: it would wait for that one."""
        made: Future[Collectives] = Future()

        def run() -> None:
            try:
                made.set_result(connect())
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                made.set_exception(error)

        threading.Thread(target=run, name="connect", daemon=True).start()
        until = time.monotonic() + _CONNECT_S
        while not wait([made], _CHECK_EVERY_S).done:
            self.check()
            if time.monotonic() > until:
                raise SetupError(
                    f"The {self.size} processes of the run found each other, but could not be connected for exchanging "
                    f"gradients within {_CONNECT_S:.0f} s.",
                    "NCCL_DEBUG=INFO lets it say more. NCCL_SOCKET_IFNAME (GLOO_SOCKET_IFNAME on CPUs) names the "
                    "network to use.",
                )
        return made.result()

    def call(self, message: Message, tensors: Mapping[str, torch.Tensor] | None = None) -> list[Message]:
        """Tell all ranks to do something, and wait until they have.

        Args:
            message: order, see `rank_server`.
            tensors: tensors on the CPU to send along.

        Returns:
            The answer of each.

        Raises:
            RankLostError: A rank ended.
            SetupError: A rank could not do it.
            OtherRankMemoryError: A rank ran out of memory over it.
        """
        self._send(message, tensors)
        return self.wait()

    def send(self, message: Message, *, answered: bool = False) -> None:
        """Tell all ranks to do something; where it is `answered`, `wait` must follow."""
        self._send(message)
        self._stepping = answered

    def wait(self) -> list[Message]:
        """Wait for the answer of each to what was told; errors as of `call`."""
        answers = self._answers()
        self._stepping = False
        return self._good(answers)

    def begin_step(self) -> None:
        """Tell all ranks to begin the next step. `agree` or `drop_step` must follow."""
        self.begin({"do": "step"})

    def begin(self, order: Message, shares: Sequence[Mapping[str, torch.Tensor] | None] | None = None) -> None:
        """Tell all ranks to begin what they do together. `agree` or `drop_step` must follow.

        Args:
            order: order, see `rank_server`.
            shares: tensors on the CPU for each other rank; None: there are none.
        """
        for rank, share in zip(self._others, shares or [None] * len(self._others), strict=True):
            self._send(order, share, [rank])
        self._stepping = True

    def _awaits(self, rank: Rank, answer: Message) -> bool:
        """Whether an answer that arrives early is that of the step: a rank may be ready before the leader is."""
        return self._stepping and rank.number not in self._early and answer.get("failed") != "error"

    def agree(self, *, more: bool = False) -> None:
        """Wait until all are ready, as when they have queued their passes of the step, and let the exchange begin.

        Args:
            more: whether each continues with what it was told to, and answers again; `agree`, `drop_step` or `wait`
                must follow.

        Raises:
            OtherRankMemoryError: A rank ran out of memory; all drop the step.
            RankLostError: A rank ended.
        """
        answers = self._answers()
        self._stepping = False
        for rank, answer in zip(self._others, answers, strict=True):
            if answer.get("failed", "memory") != "memory":
                raise self._failure(rank, answer)
        failed = any("failed" in answer for answer in answers)
        self._stepping = more and not failed
        self._send({"do": "abandon" if failed else "exchange"})
        self._good(answers)

    def drop_step(self) -> None:
        """Let all drop the step that was begun, where no exchange has been agreed on."""
        if self._stepping and not self._is_lost:
            self._answers()
            self._stepping = False
            self._send({"do": "abandon"})

    def check(self) -> None:
        """Look for ranks that ended, at most twenty times a second.

        Raises:
            RankLostError: A rank ended, or reports a failure that nobody waits for.
        """
        now = time.monotonic()
        if now - self._checked < _CHECK_EVERY_S:
            return
        self._checked = now
        readable, _, _ = select.select([rank.link for rank in self._others], [], [], 0)
        for link in readable:
            rank = next(rank for rank in self._others if rank.link is link)
            answer = self._receive(rank)
            if not self._awaits(rank, answer):
                raise self._unasked(rank, answer)
            self._early[rank.number] = answer

    def require_equal(self, own: int, step: int, answers: list[Message] | None = None) -> None:
        """Compare the weights' checksum with that of every rank.

        Args:
            own: checksum of the leader's.
            step: steps done, for the message.
            answers: answers that hold the others' checksums; None: they are asked.

        Raises:
            RanksDifferError: A rank has other weights.
        """
        found = self.call({"do": "checksum"}) if answers is None else answers
        for rank, answer in zip(self._others, found, strict=True):
            if answer.get("checksum") != own:
                raise RanksDifferError(
                    f"After step {step} the weights on rank {rank.number} are not those on rank 0. They are computed "
                    "from the same sums, so a GPU, its memory or the link between them made an error.",
                    "Check the machine with `burnish doctor`, then resume: everything saved is from before. "
                    "If it happens again, train on one GPU at a time to find the faulty one.",
                )

    def time_exchange(self, count: int, device: torch.device, repeats: int) -> float:
        """Measure the seconds of one sum over all ranks, of so many bytes.

        Args:
            count: bytes of the buffer.
            device: device of the leader.
            repeats: number of sums that are timed, after a few that are not.

        Raises:
            OtherRankMemoryError: A rank has no memory for it.
        """
        values = torch.zeros(count // 4, dtype=torch.float32, device=device)
        self._send({"do": "time", "bytes": count, "repeats": repeats + _UNTIMED})
        self._stepping = True
        self.agree()
        began = 0.0
        for index in range(_UNTIMED + repeats):
            if index == _UNTIMED:
                _wait_for(device)
                began = time.perf_counter()
            self.collectives.all_reduce(values)
        _wait_for(device)
        seconds = (time.perf_counter() - began) / repeats
        self._good(self._answers())
        return seconds

    def close(self, *, kill: bool = False) -> None:
        """End all ranks.

        Args:
            kill: whether to end them at once instead of letting them finish.
        """
        kill = kill or self._is_lost
        if not kill:
            with suppress(LinkLostError, RankLostError):
                self._send({"do": "close"})
        for rank in self._others:
            rank.end(kill=kill)
        self.collectives.close(abort=kill)

    def _send(
        self, message: Message, tensors: Mapping[str, torch.Tensor] | None = None, to: Sequence[Rank] | None = None
    ) -> None:
        for rank in self._others if to is None else to:
            try:
                rank.link.send(message, tensors)
            except LinkLostError as error:
                self._is_lost = True
                raise rank.lost() from error

    def _answers(self) -> list[Message]:
        """Wait for an answer of each; one that ends meanwhile ends the wait for all."""
        found, self._early = self._early, {}
        while len(found) < len(self._others):
            waiting = [rank for rank in self._others if rank.number not in found]
            # Those that have answered are watched too: nothing more may come from them but their end.
            readable, _, _ = select.select([rank.link for rank in self._others], [], [], 1.0)
            for rank in self._others:
                if rank.link in readable:
                    answer = self._receive(rank)
                    if rank not in waiting:
                        raise self._unasked(rank, answer)
                    found[rank.number] = answer
        return [found[rank.number] for rank in self._others]

    def _receive(self, rank: Rank) -> Message:
        try:
            return rank.link.receive()[0]
        except LinkLostError as error:
            self._is_lost = True
            raise rank.lost() from error

    def _good(self, answers: list[Message]) -> list[Message]:
        for rank, answer in zip(self._others, answers, strict=True):
            if "failed" in answer:
                raise self._failure(rank, answer)
        return answers

    def _unasked(self, rank: Rank, answer: Message) -> Exception:
        """Make the error for a failure past the point where all ranks could have dropped the step together."""
        return self._failure(rank, answer | {"failed": "error"})

    def _failure(self, rank: Rank, answer: Message) -> Exception:
        text = str(answer.get("message") or answer)
        if answer.get("failed") == "memory":
            return OtherRankMemoryError(f"on rank {rank.number}: {text}")
        self._is_lost = True
        if answer.get("code") == int(ExitCode.ENVIRONMENT):
            return SetupError(f"Rank {rank.number}: {text}")
        return RankLostError(
            f"Rank {rank.number} failed: {text}",
            "Its log is in the run's folder. The run can be resumed from its newest checkpoint.",
        )
