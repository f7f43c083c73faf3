"""Measure what a model forgets while it learns: its loss on a general text that comes with Burnish."""

from __future__ import annotations

import time
from typing import Any

from burnish_engine.advise.plan.run_time import GENERAL_TEXT_TOKENS
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import GeneralTextDone
from burnish_engine.data.tokens.general_text import general_passages
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine, EvaluationRequest
from burnish_engine.train.lifecycle.inputs import RunInputs

_PLAIN_TOKENS = 512
"""Most tokens of a pass on the plain engine, where each token of the text has its logits at once: they must not take
more memory than those of training, which learns replies only."""


class ForgettingMeter:
    """Measures the loss on general text.

    Args:
        recipe: recipe of the run.
        inputs: inputs of the run.
        recorder: recorder that receives the losses.
    """

    def __init__(self, recipe: Recipe, inputs: RunInputs, recorder: Recorder) -> None:
        self._recipe, self._inputs, self._recorder = recipe, inputs, recorder

    def measure(self, engine: Engine, step: int) -> None:
        """Measure before the first step and after the last; with early stopping at each step that may be the result.

        Args:
            engine: loaded engine.
            step: optimizer steps done.
        """
        section = self._recipe.evaluation
        if not section.general_text or not (step in (0, self._inputs.budget.steps) or section.patience):
            return
        began = time.perf_counter()
        budget = self._recipe.train.micro_batch_tokens
        if engine.facts.name == "plain":
            budget = min(budget, _PLAIN_TOKENS)
        documents = general_documents(self._inputs.tokenizer, longest=budget)
        loss, count = engine.held_out_loss(EvaluationRequest(documents, budget))
        seconds = time.perf_counter() - began
        self._recorder.emit(GeneralTextDone(step=step, loss=loss, tokens=count, seconds=seconds))


def general_documents(tokenizer: Any, *, longest: int) -> list[Document]:
    """Tokenize the passages of the general text, whole ones up to `GENERAL_TEXT_TOKENS` in all.

    Args:
        tokenizer: fast transformers tokenizer.
        longest: most tokens of a passage; the rest of a longer one is left out.
    """
    documents, total = list[Document](), 0
    for passage in general_passages(tokenizer):
        document = passage.cut(longest)
        total += len(document)
        if documents and total > GENERAL_TEXT_TOKENS:
            break
        documents.append(document)
    return documents
