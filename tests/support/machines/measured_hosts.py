"""Recorded machines with what was measured of their links (tests/golden/machines and links)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.hardware.gpu.bandwidth import MeasuredLinks, merge_measurements
from burnish_engine.hardware.recording import load, replay

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
AT_ONCE = {"gpus": 4, "to_gpus_gb_s": 4 * 43.1, "from_gpus_gb_s": 4 * 34.6, "both_ways_gb_s": 8 * 21.9}
"""Copies of four H100 at once, as measured on the host of the recording, which was made before they were part of it."""


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
    """Return the host of four H100, with the rates of copies of all at once or without."""
    return measured("h100x4", lambda answer: answer.update(host_copies=AT_ONCE if at_once else None)).machine
