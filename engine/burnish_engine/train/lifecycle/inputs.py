"""The inputs of a run beside the engine: model files, tokenizer, tokenized rows and their micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe, setting_notes
from burnish_engine.contract.run.events import Phase
from burnish_engine.data.prepare import PreparedDataset, prepare
from burnish_engine.data.report.task_hint import prompt_counter, prompt_ids
from burnish_engine.data.sandbox.render_process import shared as render_process
from burnish_engine.data.templates.library import TEMPLATES
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.held_out import MOST_ROWS, save_held_out
from burnish_engine.runs.store import with_own_template
from burnish_engine.scoring.recognize import is_suggested
from burnish_engine.scoring.rows_file import load_task_rows, save_task_rows
from burnish_engine.scoring.score import TaskRows, choose_rows
from burnish_engine.train.base.reply_stream import OwnReplyStream
from burnish_engine.train.base.stream import BatchStream, Budget
from burnish_engine.train.lifecycle.replay import with_replay
from burnish_engine.train.lifecycle.start import provide_start
from burnish_engine.train.reinforce.rollouts import Rollouts, prepare_rollouts


class InputsRecorder(Protocol):
    """The part of `Recorder` that loading uses."""

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Record the current phase of the run."""

    def progress(self, done: int, total: int) -> None:
        """Record how far the phase is."""

    def warn(self, code: str, message: str) -> None:
        """Record a warning for the person."""


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run.

    Attributes:
        source: files of the base model.
        tokenizer: tokenizer of the model.
        data: tokenized rows.
        stream: micro-batches of the rows.
        budget: number of steps and micro-batches of the run.
        held_out: rows that evaluations use.
        task: held-out rows that replies are scored on; None: they are not scored.
        start: the run's copy of the adapter that it continues from; None: it begins with a new one.
        held_out_mismatched: their prompts with replies to other prompts; None where the objective needs none.
        rollouts: writer of replies that are learned from; None where rows are learned.
    """

    source: ModelSource
    tokenizer: Any
    data: PreparedDataset
    stream: BatchStream
    budget: Budget
    held_out: Sequence[Document]
    held_out_mismatched: MismatchedDocuments | None = None
    start: Path | None = None
    task: TaskRows | None = None
    rollouts: Rollouts | None = None

    @classmethod
    def load(cls, paths: RunPaths, recipe: Recipe, recorder: InputsRecorder, *, fresh: bool) -> Self:
        """Open the model and read the data.

        Args:
            paths: run folder.
            recipe: recipe of the run.
            recorder: recorder of phases and of warnings about the data.
            fresh: whether the run begins; its held-out rows are then saved in the run folder, for use after training.

        Raises:
            BurnishError: The model or the data cannot be used.
        """
        recorder.phase("loading", recipe.model.path)
        render_process.start()  # it gets ready while the tokenizer is loaded
        source = open_model(recipe.model.path)
        start = provide_start(paths, recipe, source, fresh=fresh)
        tokenizer = load_tokenizer(source)
        recorder.phase("preparing")

        def rows(_what: str, done: int, total: int) -> None:
            if done:
                recorder.progress(done, total)

        data = prepare(with_own_template(paths, recipe), tokenizer, progress=rows)
        data = with_replay(data, recipe, source, tokenizer, kept=paths.replay, progress=recorder.progress)
        for message in data.facts.warnings:
            recorder.warn("data", message)
        for message in setting_notes(recipe, "preference", "reinforce"):
            recorder.warn("recipe", message)
        if fresh:
            documents = [one.first_sequence().input_ids.tolist() for one in data.validation[:MOST_ROWS]]
            save_held_out(paths, documents, data.validation_conversations)
            if recipe.data.template not in ("auto", *TEMPLATES):
                write_atomic(paths.template, data.template.source)
        held_out = data.validation[: recipe.evaluation.max_rows or None]
        mismatched = [
            MismatchedDocuments(documents, recipe.data.max_length) if recipe.preference.estimates_kl else None
            for documents in (data.train, held_out)
        ]
        task = _task_rows(paths, recipe, tokenizer, data, recorder, fresh=fresh)
        rollouts = _rollouts(recipe, data, tokenizer, start, recorder) if recipe.preference.learns_rewards else None
        if rollouts:
            lengths = [prompt.tokens for prompt in rollouts.prompts]
            stream: BatchStream = OwnReplyStream(data.train, recipe.train, recipe.reinforce, lengths)
        else:
            stream = BatchStream(data.train, recipe.train, mismatched=mismatched[0], alike=recipe.devices.shares)
        return cls(source, tokenizer, data, stream, stream.budget(), held_out, mismatched[1], start, task, rollouts)

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Render turns with the training data's template, ready for the reply, and return their token ids."""
        return prompt_ids(self.data.template, self.tokenizer, messages)


def _rollouts(
    recipe: Recipe, data: PreparedDataset, tokenizer: Any, start: Path | None, recorder: InputsRecorder
) -> Rollouts:
    """Find the rows that replies are written to, and warn of those that cannot be used."""
    rollouts, left_out = prepare_rollouts(recipe, data.train, tokenizer, start)
    try:
        for message in filter(None, (left_out, rollouts.own_worth())):
            recorder.warn("rewards", message)
    except BaseException:
        rollouts.rewards.close()
        raise
    return rollouts


def _task_rows(
    paths: RunPaths, recipe: Recipe, tokenizer: Any, data: PreparedDataset, recorder: InputsRecorder, *, fresh: bool
) -> TaskRows | None:
    """Choose the rows that replies are scored on, and save them in the run folder; a resumed run reads them there."""
    if not recipe.task.is_active:
        return None
    if not fresh and (kept := load_task_rows(paths)) is not None:
        return kept

    chats = data.validation_conversations[:MOST_ROWS]
    counter = prompt_counter(data.template, tokenizer)
    try:
        rows = choose_rows(recipe.task, chats, counter, recipe.data.max_length)
    except UsageError as error:
        report = data.facts.report
        if not is_suggested(recipe.task, report.task if report is not None else None):
            raise
        recorder.warn("task", f"{error.what} The score was suggested, and is left out.")
        return None
    save_task_rows(paths, rows)
    return rows
