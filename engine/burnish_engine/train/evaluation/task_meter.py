"""Score the task during training: greedy replies to held-out rows, before the first step and of the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from burnish_engine.contract.facts.task_score import TaskScore
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import TaskScored
from burnish_engine.models.generation.generate import reply_groups
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.lifecycle.early_stopping import EarlyStopping
from burnish_engine.train.lifecycle.inputs import RunInputs


class TaskMeter:
    """Scores the task of a run.

    Args:
        recipe: recipe of the run.
        inputs: inputs of the run.
        recorder: recorder that receives the scores.
    """

    def __init__(self, recipe: Recipe, inputs: RunInputs, recorder: Recorder) -> None:
        self._recipe, self._inputs, self._recorder = recipe, inputs, recorder

    def is_due(self, step: int, early: EarlyStopping) -> bool:
        """Return whether the weights after so many steps are scored: before the first step, and what may be the result.

        Args:
            step: optimizer steps done.
            early: early stopping, which has seen the step's held-out loss.
        """
        last = early.best.step == step if early.is_on else step == self._inputs.budget.steps
        shows_tricks = self._recipe.preference.learns_rewards  # only beside rewards that rise
        return self._inputs.task is not None and (step == 0 or last or shows_tricks)

    def measure(self, engine: Engine, step: int, early: EarlyStopping, ends: Callable[[], object]) -> TaskScore | None:
        """Score before the first step and after the last; with early stopping after each step that is the best so far.

        Where rewards are learned, every evaluation is scored.

        Args:
            engine: loaded engine.
            step: optimizer steps done.
            early: early stopping, which has seen the step's held-out loss.
            ends: function called between groups of replies, which carries out the user's commands and says whether the
                run shall end; then nothing is recorded, and the score is made when the run continues.

        Returns:
            The score; None where none was due, or the run shall end.
        """
        task = self._inputs.task
        if task is None or not self.is_due(step, early):
            return None
        self._recorder.phase("scoring")
        began = time.perf_counter()
        prompts = [self._inputs.prompt_ids(row.messages) for row in task.rows]
        found = self._replies(engine, prompts, task.section.max_tokens, ends)
        if found is None:
            return None
        score = task.score([(reply.text, reply.stopped) for reply in found])
        self._recorder.emit(TaskScored(step=step, score=score, seconds=time.perf_counter() - began))
        return score

    def _replies(
        self, engine: Engine, prompts: Sequence[list[int]], longest: int, ends: Callable[[], object]
    ) -> list[GeneratedReply] | None:
        """Generate the replies in their order, as many together as a pass has tokens; None where the run shall end."""
        found: dict[int, GeneratedReply] = {}
        budget, paged = self._recipe.train.micro_batch_tokens, engine.replies_are_paged
        for group in reply_groups([len(ids) for ids in prompts], longest, budget, paged=paged):
            if ends():
                return None
            made = engine.replies([prompts[row] for row in group], longest)
            found.update(zip(group, made, strict=True))
            self._recorder.progress(len(found), len(prompts))
        return [found[row] for row in range(len(prompts))]
