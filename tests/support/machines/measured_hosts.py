"""Recorded machines with what was measured of their links (tests/golden/machines and links)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.hardware.gpu.bandwidth import MeasuredLinks, merge_measurements

from support.machines.replay import load, replay

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
AT_ONCE = {"gpus": 4, "to_gpus_gb_s": 4 * 43.1, "from_gpus_gb_s": 4 * 34.6, "both_ways_gb_s": 8 * 21.9}
"""Copies of four H100 at once on the host whose steps were measured (tests/bench/LOG.md, 2026-11-26).

The recording is of another host of this kind, which copies less: 153 GB/s to its cards, 129 from them, 159 both ways.
"""


def measured(name: str, change: Callable[[dict[str, Any]], object] = lambda answer: None) -> MeasuredLinks:
    """Return a recorded machine with its recorded links.

    Args:
        name: name of the recordings.
        change: function that changes the answer of the process that measured.
    """
    answer = json.loads((GOLDEN / "links" / f"{name}.json").read_text(encoding="utf-8"))
    change(answer)
    return merge_measurements(replay(load(GOLDEN / "machines" / f"{name}.json")), answer)


def four_h100(*, at_once: bool = True) -> MachineFacts:
    """Return the host of four H100, with `AT_ONCE` or with no rates of copies of all at once."""
    return measured("h100x4", lambda answer: answer.update(host_copies=AT_ONCE if at_once else None)).machine
