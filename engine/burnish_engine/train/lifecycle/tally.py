"""Count what a run has done, from before its session is opened until after its end."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.train.lifecycle.checkpoint import Position
from burnish_engine.train.lifecycle.measure import Measure


@dataclass
class Tally:
    """Counts and measurements of a run.

    They exist before the session, so that the event of a run's end has them even where the session could not be opened.

    Attributes:
        step: optimizer steps made.
        micro_batches: micro-batches of the steps whose results have arrived.
        tokens: real tokens of these.
        saved_step: steps in the newest checkpoint of the loaded engine; -1 where it has none.
        measure: measurements of memory and speed; None before the run uses its device.
    """

    step: int = 0
    micro_batches: int = 0
    tokens: int = 0
    saved_step: int = -1
    measure: Measure | None = None

    def go_to(self, position: Position | None) -> None:
        """Go on from the counts of a checkpoint; None: from the beginning."""
        self.step = position.step if position else 0
        self.micro_batches = position.micro_batches if position else 0
        self.tokens = position.tokens if position else 0
        self.saved_step = position.step if position else -1
