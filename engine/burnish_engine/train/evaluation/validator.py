"""The periodic evaluation of a run: the loss of held-out rows, and replies to fixed prompts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.facts.advice import SamplePlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import EvaluationDone, HeldOutPairsDone, ProgressUnit, SampleDone
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine, EvaluationRequest, PreferenceFigures
from burnish_engine.train.base.preference import evaluate_labels, evaluate_pairs
from burnish_engine.train.lifecycle.inputs import RunInputs

_KL_ROWS = 32  # held-out rows over which the divergence from the base is measured: each is read twice, head included


class Validator:
    """Evaluates the model during training.

    Args:
        recipe: recipe of the run.
        inputs: inputs of the run.
        recorder: recorder that receives losses and replies.
        samples: when the model answers the fixed prompts.

    Attributes:
        newest: newest evaluation; None before the first.
    """

    def __init__(self, recipe: Recipe, inputs: RunInputs, recorder: Recorder, samples: SamplePlan) -> None:
        self._recipe, self._inputs, self._recorder, self._samples = recipe, inputs, recorder, samples
        self.newest: EvaluationDone | None = None

    def is_due(self, step: int) -> bool:
        """Return whether the recipe asks for an evaluation after this step."""
        every = self._recipe.evaluation.every
        return bool(every) and step % every == 0

    def held_out_loss(self, engine: Engine, step: int) -> float | None:
        """Compute the mean loss of the held-out rows, per supervised token (nats) or preference; None without rows.

        Where this may be the result of a run that learns from pairs, what all such runs measure is recorded too.
        """
        if not self._inputs.held_out:
            return None
        began = time.perf_counter()
        rows, budget = self._inputs.held_out, self._recipe.train.micro_batch_tokens
        figures: dict[str, float | None] = {}
        shared: HeldOutPairsDone | None = None
        if self._recipe.preference.is_active:
            loss, found, log_probs = self._preference_loss(engine)
            may_be_result = step == self._inputs.budget.steps or (step > 0 and self._recipe.evaluation.patience > 0)
            if self._recipe.preference.learns_pairs and may_be_result:
                accuracy, chosen_loss = shared_measures(log_probs, rows)
                shared = HeldOutPairsDone(step=step, pairs=len(rows), accuracy=accuracy, chosen_loss=chosen_loss)
            count, figures = sum(one.supervised_tokens for one in rows), asdict(found)
            chosen = [one.first_sequence() for one in rows[:_KL_ROWS]]
            figures["kl_to_base"] = engine.kl_to_base(EvaluationRequest(chosen, budget))
        else:
            request = EvaluationRequest(rows, budget, lambda done: self._recorder.progress(done, len(rows)))
            loss, count = engine.held_out_loss(request)
            if self._recipe.preference.learns_rewards:
                figures["kl_to_base"] = engine.kl_to_base(EvaluationRequest(rows[:_KL_ROWS], budget))
        seconds = time.perf_counter() - began
        self.newest = EvaluationDone(step=step, loss=loss, tokens=count, seconds=seconds, **figures)
        self._recorder.emit(self.newest)
        if shared is not None:
            self._recorder.emit(shared)
        self._recorder.update(evaluation_loss=loss if math.isfinite(loss) else None)
        return loss

    def _preference_loss(self, engine: Engine) -> tuple[float, PreferenceFigures, npt.NDArray[np.float32]]:
        """Compute loss and figures of the held-out preferences, and [rows, sequences] log-probabilities in nats."""
        section, held_out = self._recipe.preference, self._inputs.held_out
        budget = self._recipe.train.micro_batch_tokens
        other = self._inputs.held_out_mismatched
        total = len(held_out) + len(other or ())
        unit: ProgressUnit = "rows" if section.learns_labels else "pairs"

        def log_probs(documents: Sequence[Document], before: int) -> npt.NDArray[np.float32]:
            return engine.log_probs(
                EvaluationRequest(documents, budget, lambda done: self._recorder.progress(before + done, total, unit))
            )

        own, references = log_probs(held_out, 0), self._inputs.stream.references
        if not section.learns_labels:
            return *evaluate_pairs(section, own, held_out, references.held_out if references else None), own
        assert references is not None
        mismatched = (log_probs(other, len(held_out)), references.held_out_mismatched) if other else None
        return *evaluate_labels(section, own, references.held_out, held_out, mismatched), own

    def samples_are_due(self, step: int) -> bool:
        """Return whether an evaluation after this step has replies to the fixed prompts."""
        return self._samples.is_due(step, self._inputs.budget.steps)

    def samples(self, engine: Engine, step: int) -> None:
        """Let the model answer the recipe's prompts, as many and as long as planned."""
        asked = self._recipe.evaluation.prompts[: self._samples.prompts]
        if not asked:
            return
        system = self._recipe.data.system_prompt
        start = [{"role": "system", "content": system}] if system else []
        prompts = [self._inputs.prompt_ids([*start, {"role": "user", "content": prompt}]) for prompt in asked]
        replies = engine.replies(prompts, self._samples.tokens)
        for prompt, reply in zip(asked, replies, strict=True):
            self._recorder.emit(SampleDone(step=step, prompt=prompt, reply=reply.text, stopped=reply.stopped))


def shared_measures(log_probs: npt.NDArray[np.float32], pairs: Sequence[Document]) -> tuple[float, float]:
    """Compute the share of pairs whose chosen reply is the likelier one, and the loss of chosen replies.

    Args:
        log_probs: [pairs, 2] summed log-probabilities of chosen and rejected replies, nats.
        pairs: documents of the pairs.

    Returns:
        The share, 0 to 1, and the mean cross entropy per token, nats.
    """
    log_prob_P2 = log_probs.astype(np.float64)
    tokens = sum(pair.first_sequence().supervised_tokens for pair in pairs)
    return float((log_prob_P2[:, 0] > log_prob_P2[:, 1]).mean()), float(-log_prob_P2[:, 0].sum() / tokens)
