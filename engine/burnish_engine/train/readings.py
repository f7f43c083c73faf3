"""How a run is watched on its way: the loss of held-out rows, and replies to fixed prompts."""

from __future__ import annotations

import math
import time

from burnish_engine.contract.events import EvaluationDone, SampleDone
from burnish_engine.contract.recipe import Recipe
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.engine import Engine
from burnish_engine.train.materials import Materials


class Readings:
    """See the module's text.

    Args:
        recipe: The run's.
        materials: What is trained on.
        recorder: Where readings are written.
    """

    def __init__(self, recipe: Recipe, materials: Materials, recorder: Recorder) -> None:
        self._recipe, self._materials, self._recorder = recipe, materials, recorder

    def is_due(self, step: int) -> bool:
        """Whether the recipe asks for an evaluation after this step."""
        every = self._recipe.evaluation.every
        return bool(every) and step % every == 0

    def held_out_loss(self, engine: Engine, step: int) -> float | None:
        """Mean loss of the held-out rows, nats per learned token; None where there are none."""
        if not self._materials.held_out:
            return None
        began = time.perf_counter()
        loss, count = engine.held_out_loss(self._materials.held_out, self._recipe.train.micro_batch_tokens)
        seconds = time.perf_counter() - began
        self._recorder.emit(EvaluationDone(step=step, loss=loss, tokens=count, seconds=seconds))
        self._recorder.update(evaluation_loss=loss if math.isfinite(loss) else None)
        return loss

    def samples(self, engine: Engine, step: int) -> None:
        """Let the model answer the recipe's prompts."""
        section = self._recipe.evaluation
        if not section.prompts:
            return
        system = self._recipe.data.system_prompt
        start = [{"role": "system", "content": system}] if system else []
        prompts = [self._prompt_ids([*start, {"role": "user", "content": prompt}]) for prompt in section.prompts]
        replies = engine.replies(prompts, section.sample_tokens)
        for prompt, reply in zip(section.prompts, replies, strict=True):
            self._recorder.emit(SampleDone(step=step, prompt=prompt, reply=reply.text, stopped=reply.stopped))

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a prompt, rendered with the template that the data is trained with."""
        text = self._materials.data.template.render(messages, add_generation_prompt=True)
        ids: list[int] = self._materials.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
