"""Predict what a file of each GGUF type would be: its size, the gain it keeps, and its speed on this processor."""

from __future__ import annotations

import time
from pathlib import Path

from burnish_engine.advise.predict.on_target import GENERATION_SHARE, token_bytes
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.export_forecast import TypeForecast
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.export.forecast import type_bytes
from burnish_engine.export.gguf.write import GgufPlan, header_bytes
from burnish_engine.hardware.host.cpu import usable_cores

_SPEED_CONTEXT = 256  # tokens; an exported file is timed in a short conversation as well
_TRIAL_BYTES, _TRIALS = 256 * 2**20, 4  # more than processors cache


def forecast_types(
    plan: GgufPlan,
    spec: DecoderSpec | None,
    scratch: Path,
    *,
    importance: bool,
    gain: float,
) -> list[TypeForecast]:
    """Predict the file of every type that the model's rows fit.

    The loss of a file is taken to rise by its KL divergence, so of a gain of 1 nat a file with a KL of 0.03 keeps 97 %.
    In the published table it rises by as much for Q2_K, by an eighth less for Q4_K_M, and by far less for Q8_0.

    Args:
        plan: plan of the file.
        spec: shape of the model; None where not known in detail: then a token reads the whole file.
        scratch: folder for a small temporary file.
        importance: whether there will be an importance matrix.
        gain: held-out loss that training took away, nats; 0 or less: none was measured.
    """
    rate, start, found = read_rate(), header_bytes(plan, scratch), []
    for quant, facts in GGUF_TYPES.items():
        if facts.importance == "needed" and not importance:
            continue
        try:
            size = type_bytes(plan, quant, start, importance=importance)
        except UsageError:  # the rows do not fill its blocks
            continue
        kl = facts.weighed_kl if importance and facts.weighed_kl is not None else facts.kl
        read = token_bytes(spec, size, _SPEED_CONTEXT) if spec is not None else size
        kept = max(1.0 - kl / gain, 0.0) if gain > 0 else None
        found.append(
            TypeForecast(
                quant=quant, bytes=size, mean_kl=kl, gain_kept=kept, tokens_per_s=GENERATION_SHARE * rate / read
            )
        )
    return found


def read_rate() -> float:
    """Measure how fast this machine's processor reads memory with all cores, bytes per second; some milliseconds."""
    import torch

    threads, best = torch.get_num_threads(), float("inf")
    try:
        torch.set_num_threads(usable_cores())
        values = torch.ones(_TRIAL_BYTES // 4)
        for _ in range(_TRIALS):
            begun = time.perf_counter()
            values.sum()
            best = min(best, time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return _TRIAL_BYTES / best
