"""Cache the machine's facts, and probe again when they are old."""

from __future__ import annotations

import threading
import time

from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.hardware.gpu.topology import with_edges
from burnish_engine.hardware.probe import probe

_FRESH_S = 1.0


class MachineCache:
    """Cache the machine's facts. Any thread may ask; the probe runs once at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: MachineFacts | None = None
        self._probed = 0.0

    def facts(self, *, fresh: bool = False) -> MachineFacts:
        """Return the machine's facts, at most a second old.

        Args:
            fresh: whether to probe now, because memory was freed a moment ago.
        """
        with self._lock:
            if fresh or self._facts is None or time.monotonic() - self._probed > _FRESH_S:
                self._facts = with_edges(probe())
                self._probed = time.monotonic()
            return self._facts
