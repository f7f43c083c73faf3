"""Early stopping: end a run whose held-out loss no longer improves, with the weights of the best evaluation.

The best weights are saved beside the checkpoints, as `best-000120/`, and become the run's result at the end. Their step
is part of every checkpoint: a resumed run repeats the evaluations after it, and finds the same.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.lifecycle.checkpoint import replaced_files, save_adapter

_PREFIX = "best-"


class BestSoFar(BaseModel):
    """Step and loss of the best evaluation, and the evaluations since; part of every checkpoint."""

    model_config = ConfigDict(extra="ignore")

    step: int | None = None
    loss: float = 0.0
    since: int = 0

    @property
    def known(self) -> bool:
        """Whether there was an evaluation with a finite loss."""
        return self.step is not None


class EarlyStopping:
    """Keeps the best weights and decides when to stop.

    Args:
        section: the recipe's evaluation section.
        folder: folder of the checkpoints.

    Attributes:
        best: best evaluation so far.
    """

    def __init__(self, section: EvaluationSection, folder: Path) -> None:
        self._section, self._folder = section, folder
        self.best = BestSoFar()

    @property
    def is_on(self) -> bool:
        """Whether the recipe asks for early stopping."""
        return self._section.patience > 0

    @property
    def is_over(self) -> bool:
        """Whether the loss has not improved for long enough."""
        return self.is_on and self.best.since >= self._section.patience

    @property
    def text(self) -> str:
        """Sentence on why the run ended."""
        best, patience = self.best, self._section.patience
        what = f"The held-out loss has not improved in {patience} evaluation{'s' if patience > 1 else ''}"
        return f"{what}, so the run stopped early; its result is that of step {best.step} ({best.loss:.4f} nats)."

    def evaluated(self, engine: Engine, step: int, loss: float) -> None:
        """Record a held-out loss; save the weights where it is the best so far.

        Args:
            engine: engine that trains.
            step: optimizer steps made, at least 1.
            loss: held-out loss, nats.

        Raises:
            NoSpaceError: The weights could not be written.
        """
        best = self.best
        if math.isfinite(loss) and (not best.known or loss < best.loss - self._section.min_improvement):
            save_adapter(engine, self._of(step))
            self.best = BestSoFar(step=step, loss=loss)
        else:
            self.best = best.model_copy(update={"since": best.since + 1})

    def place(self, target: Path) -> None:
        """Copy the best weights to the run's result, file by file, so that the folder can always be loaded.

        Raises:
            NoSpaceError: The weights could not be written.
        """
        assert self.best.step is not None
        with replaced_files(target) as aside:
            shutil.copytree(self._of(self.best.step), aside)

    def prune(self, needed: Iterable[int | None]) -> None:
        """Delete all saved best weights but the current ones and the ones of the needed steps."""
        steps = {self.best.step, *needed}
        for folder in self._folder.glob(f"{_PREFIX}*"):
            name = folder.name.removeprefix(_PREFIX)
            if name.isdecimal() and int(name) not in steps:
                shutil.rmtree(folder, ignore_errors=True)

    def _of(self, step: int) -> Path:
        return self._folder / f"{_PREFIX}{step:06d}"
