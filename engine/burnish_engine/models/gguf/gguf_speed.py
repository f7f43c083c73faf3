"""Time how fast llama.cpp generates with a file on this machine's processor."""

from __future__ import annotations

import time
from pathlib import Path

from burnish_engine.models.gguf.gguf_runtime import GgufModel

_WARM_UP, _PARTS, _TOKENS = 8, 4, 8  # tokens before the measurement, parts of it, tokens of a part


class FedModel(GgufModel):
    """A model whose tokens are chosen for it, so that no end token cuts a measurement short."""

    def feed(self, ids: list[int]) -> int:
        """Read tokens as llama.cpp reads a prompt; return the most likely next one."""
        for start in range(0, len(ids), self._block):
            logits = self._decode(ids[start : start + self._block], every=False)
        return int(logits[0].argmax())

    def restart(self) -> None:
        """Drop all tokens read so far."""
        self._forget(0)


def generation_speed(path: Path, *, threads: int = 0) -> float:
    """Measure a file's generation speed in a short conversation, tokens per second.

    The fastest of several parts counts: what other programs do on the machine slows the others.

    Args:
        path: GGUF file.
        threads: number of CPU threads; 0 means one per physical core.

    Raises:
        SetupError: llama.cpp cannot load the file.
    """
    with FedModel(path, context=_WARM_UP + _PARTS * _TOKENS + 1, threads=threads) as model:
        token = model.feed(list(range(min(_WARM_UP, model.vocab_size))))  # maps the file's pages, starts the threads
        best = float("inf")
        for _ in range(min(_PARTS, (model.context - _WARM_UP) // _TOKENS)):
            begun = time.perf_counter()
            for _ in range(_TOKENS):
                token = model.feed([token])
            best = min(best, time.perf_counter() - begun)
        return _TOKENS / best
