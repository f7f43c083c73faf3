"""Let several models answer at once, each in a process of its own, where their memory allows it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.chat.target import FileTarget, find_target
from burnish_engine.contract.errors import BurnishError, StoppedError
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import MOST_LANES, ChatRequest
from burnish_engine.runs.jobs.lease import holders

_RUNTIME_BYTES = 1200 * 2**20  # Python with torch, or llama.cpp with its buffers; a CUDA context takes as much
_CPU_SHARE, _GPU_SHARE = 2.2, 1.2  # memory per byte of weights on disk: fp32 from 16 bits on a CPU, and room to talk
_RUN = "a run is training"
_MEMORY = "they do not fit into memory together"


class ChatPool:
    """Answer chat requests, those of different lanes at once where memory allows, else one after another.

    Args:
        machine: function that returns the machine's facts as they are now.
    """

    def __init__(self, machine: Callable[[], MachineFacts]) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._children = [Child("burnish_engine.chat.worker", "chat process") for _ in range(MOST_LANES)]
        self._held: list[tuple[tuple[str, str], int] | None] = [None] * MOST_LANES  # (model, its bytes) of each lane
        self._loading: dict[int, int] = {}  # lane to the bytes that it is about to take

    def ask(self, request: ChatRequest, job: Job) -> Result:
        """Answer a request, and say in the reply why it had to wait for others.

        Raises:
            FailedError: The model cannot answer.
            StoppedError: The request was canceled.
            SetupError: The process ended unexpectedly.
        """
        lane, why = self.choose(request)
        if why:
            self._release(request.lane)
            job.progress(f"Waits for its turn: {why}", 0, 0)
        try:
            result = self._children[lane].ask(request, job, about=request.target)
        except StoppedError:
            raise  # what was loaded stays
        except BaseException:
            with self._lock:
                self._held[lane] = None  # whether it is loaded is not known
            raise
        finally:
            with self._lock:
                self._loading.pop(lane, None)
        if result.reply is None or not why:
            return result
        return result.model_copy(update={"reply": result.reply.model_copy(update={"waited": why})})

    def end_if_idle(self) -> None:
        """End the processes that are not answering, and free their memory."""
        for lane in range(MOST_LANES):
            self._release(lane)

    def close(self) -> None:
        """End all processes, even during a request."""
        for child in self._children:
            child.close()
        with self._lock:
            self._held = [None] * MOST_LANES

    def _release(self, lane: int) -> None:
        """Free what a lane that is not used holds, unless it is answering."""
        if self._children[lane].end_if_idle():
            with self._lock:
                if lane not in self._loading:
                    self._held[lane] = None

    def choose(self, request: ChatRequest) -> tuple[int, str]:
        """Return the lane that answers, and why that is the first one although another was asked for."""
        key, wanted = (request.target, request.variant), request.lane
        with self._lock:
            held = self._held[wanted]
            if held is not None and held[0] == key:
                return wanted, ""
            need, on_gpu = self._need(request)
            why = self._refusal(need, on_gpu, held[1] if held is not None else 0) if wanted else ""
            lane = 0 if why else wanted
            self._held[lane] = key, need
            self._loading[lane] = need
            return lane, why

    def _refusal(self, need: int, on_gpu: bool, freed: int) -> str:
        """Return why a model cannot be loaded beside the others; empty where it can."""
        if holders():
            return _RUN
        facts = self._machine()
        free = facts.gpus[0].vram_free_bytes if on_gpu else facts.ram_free_bytes
        return "" if need + sum(self._loading.values()) <= free + freed else _MEMORY

    def _need(self, request: ChatRequest) -> tuple[int, bool]:
        """Return what a model takes, bytes, and whether that is a GPU's memory; 0 where it cannot be opened anyway."""
        with suppress(BurnishError, OSError):
            target = find_target(request.target, request.variant)
            if isinstance(target, FileTarget):
                return int(target.path.stat().st_size) + _RUNTIME_BYTES, False
            on_gpu = bool(self._machine().gpus) and target.devices.kind != "cpu"
            size = sum(file.stat().st_size for file in target.open().folder.glob("*.safetensors"))
            return int(size * (_GPU_SHARE if on_gpu else _CPU_SHARE)) + _RUNTIME_BYTES, on_gpu
        return 0, False
