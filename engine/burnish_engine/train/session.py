"""One training session: from a run folder to its last step."""

from __future__ import annotations

import platform
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.contract.errors import DivergedError, UsageError
from burnish_engine.contract.events import (
    CheckpointSaved,
    DataReady,
    EvaluationDone,
    PhaseChanged,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import recipe_hash
from burnish_engine.contract.version import burnish_version
from burnish_engine.data.prepare import Prepared, prepare
from burnish_engine.models.device import choose_precision, choose_threads, describe, lease_name, memory_bytes
from burnish_engine.models.source import open_model
from burnish_engine.models.tokenizer import load_tokenizer
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.held_out import save_held_out
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.choose_engine import make_engine
from burnish_engine.train.commands import Desk, Ending
from burnish_engine.train.engine import Engine, StepResult
from burnish_engine.train.fit import check_fit
from burnish_engine.train.stream import BatchStream, Budget

_ETA_STEPS = 20  # the step time is averaged over this many steps to predict the end
_STATE_EVERY_S = 0.5


class Session:
    """Trains one run in this process. `run` does everything; the attributes tell where it stands.

    Args:
        paths: The run folder.
        recipe: The frozen recipe.
        anyway: Train although the plan says that it does not fit.
        stopping: Told at once when a signal asks to stop; the step is finished and saved first.

    Attributes:
        device: Where to train; set before `run`.
        step: Optimizer steps done.
    """

    def __init__(
        self, paths: RunPaths, recipe: Recipe, *, anyway: bool = False, stopping: Callable[[], None] | None = None
    ) -> None:
        self.paths, self.recipe = paths, recipe
        self._anyway, self._stopping = anyway, stopping
        self.device = torch.device("cpu")
        self.step = 0
        self._micro_batches = 0
        self._tokens = 0
        self._saved_step = -1
        self._control = ControlReader(paths.control)
        self._state_written = 0.0
        self._step_seconds: deque[float] = deque(maxlen=_ETA_STEPS)

    def run(self, recorder: Recorder) -> Ending | None:
        """Train to the end of the recipe.

        Returns:
            How the person ended it early, or None when all steps were made.

        Raises:
            BurnishError: Any expected failure; what was saved stays.
        """
        self._recorder = recorder
        resume = self._find_checkpoint()
        self._load(resume)
        try:
            return self._carry_out(recorder)
        finally:
            self._engine.close()

    def _carry_out(self, recorder: Recorder) -> Ending | None:
        desk = Desk(self._control, recorder, checkpoint=self._checkpoint, sample=self._samples, stopping=self._stopping)
        with desk.signals():
            if self.step == 0:
                self._evaluate()
            self._phase("training")
            ending = None
            while self.step < self._budget.steps and not (ending := desk.attend()):
                self._train_step()
                self._after_step()
            self._take_results(wait=True)
            if ending == "stop_now":
                return ending
            if ending is None and not self._is_evaluation_step():
                self._evaluate()
            self._phase("saving")
            self._checkpoint()
            checkpoints.save_adapter(self._engine, self.paths.adapter)
        return ending

    def _find_checkpoint(self) -> Path | None:
        found, broken = checkpoints.find_checkpoint(self.paths.checkpoints)
        for name in broken:
            self._warn("checkpoint_broken", f"The checkpoint {name} is not whole and is not used.")
        return found

    def _load(self, resume: Path | None) -> None:
        recipe, recorder = self.recipe, self._recorder
        position = checkpoints.read_position(resume) if resume else None
        self._threads = position.threads if position else choose_threads(recipe.devices.threads)
        torch.set_num_threads(self._threads)
        self._seed_everything()
        self._phase("loading", recipe.model.path)
        source = open_model(recipe.model.path)
        tokenizer = load_tokenizer(source)
        self._phase("preparing")
        self._data: Prepared = prepare(recipe, tokenizer)
        for message in self._data.facts.warnings:
            self._warn("data", message)
        if not resume:
            documents = [document.input_ids.tolist() for document in self._data.validation]
            save_held_out(self.paths, documents, self._data.validation_conversations)
        self._stream = BatchStream(self._data.train, recipe.train)
        self._budget: Budget = self._stream.budget()
        # A run that already trained here is not refused for what happens to be free now, only warned about.
        check_fit(recipe, self._data.facts, recorder, anyway=self._anyway or resume is not None)
        if self.device.type == "cuda":
            torch.cuda.init()
            torch.cuda.reset_peak_memory_stats(self.device)
        self._precision = position.precision if position else choose_precision(recipe.train.precision, self.device)
        self._tokenizer = tokenizer
        self._engine: Engine = make_engine(
            source,
            recipe,
            self._stream,
            tokenizer,
            precision=self._precision,
            device=self.device,
            adapter=resume / "adapter" if resume else None,
            name=position.engine if position else None,
            layout=position.layout if position else None,
        )
        self._tell_notes()
        if resume and position:
            self._restore(resume, position)
        self._engine.start(self.step, self._budget.steps, self._budget.micro_batches)
        self._announce(recorder, position)

    def _tell_notes(self) -> None:
        """Pass on what the engine has to say."""
        while self._engine.notes:
            self._warn("engine", self._engine.notes.pop(0))

    def _restore(self, resume: Path, position: checkpoints.Position) -> None:
        if position.dataset_hash != self._data.dataset_hash:
            raise UsageError(
                "The training data is not what this run was started with (its files changed since).",
                "Put the files back as they were, or start a new run.",
            )
        if position.recipe_hash != recipe_hash(self.recipe):
            raise UsageError(
                f"The recipe in {self.paths.recipe} was changed after the run started.",
                "Put it back as it was, or start a new run with the changed recipe.",
            )
        if position.device != self.device.type:
            self._warn(
                "device",
                f"This run was started on {position.device} and goes on on {self.device.type}: losses will differ in "
                "their last digits from an uninterrupted run's.",
            )
        checkpoints.restore_training(resume, self._engine, self.device)
        self.step = self._saved_step = position.step
        self._micro_batches, self._tokens = position.micro_batches, position.tokens

    def _announce(self, recorder: Recorder, position: checkpoints.Position | None) -> None:
        pid, created = own_identity()
        recorder.emit(
            RunStarted(
                run=self.paths.root.name,
                pid=pid,
                process_created=created,
                device=describe(self.device),
                precision=self._precision,
                engine=self._engine.name,
                resumed_from_step=position.step if position else None,
                total_steps=self._budget.steps,
                versions=_versions(),
            )
        )
        facts = self._data.facts
        recorder.emit(
            DataReady(
                train_rows=facts.train_rows,
                validation_rows=facts.validation_rows,
                dropped_rows=sum(facts.dropped.values()),
                truncated_rows=facts.truncated_rows,
                train_tokens=sum(len(document) for document in self._data.train),
                supervised_tokens=sum(document.supervised_tokens for document in self._data.train),
                micro_batches_per_epoch=self._budget.per_epoch,
                fill=facts.fill,
            )
        )
        recorder.update(step=self.step, total_steps=self._budget.steps, device=lease_name(self.device))

    def _train_step(self) -> None:
        self._engine.queue_step()
        self.step += 1
        self._take_results()
        self._tell_notes()

    def _take_results(self, *, wait: bool = False) -> None:
        """Record what finished steps found; with `wait`, of all steps so far."""
        for result in self._engine.results(wait=wait):
            self._record(result)

    def _record(self, result: StepResult) -> None:
        # In fp16 the loss scale is halved after such a step, until there is nothing left to halve.
        if not result.taken and (self._precision != "fp16" or result.loss_scale <= 1.0):
            self.step = result.step  # later ones may be queued
            raise DivergedError(
                f"At step {result.step} the loss is {result.loss} and the gradient norm {result.grad_norm}; the step "
                "was not taken.",
                f"Start a new run with a lower train.learning_rate (now {self.recipe.train.learning_rate:g})"
                f"{'' if self._precision == 'fp32' else ', or in fp32'}; earlier checkpoints are kept.",
            )
        self._micro_batches += result.micro_batches
        self._tokens += result.tokens
        seconds = result.seconds
        self._step_seconds.append(seconds)
        mean_seconds = sum(self._step_seconds) / len(self._step_seconds)
        self._recorder.emit(
            StepDone(
                step=result.step,
                epoch=self._stream.epoch_of(self._micro_batches),
                loss=result.loss,
                learning_rate=result.learning_rate,
                grad_norm=result.grad_norm,
                tokens=result.tokens,
                supervised_tokens=result.supervised,
                tokens_per_s=result.tokens / seconds,
                supervised_tokens_per_s=result.supervised / seconds,
                step_s=seconds,
                memory_bytes=memory_bytes(self.device),
                eta_s=mean_seconds * (self._budget.steps - result.step),
            )
        )
        if time.monotonic() - self._state_written > _STATE_EVERY_S or result.step == self._budget.steps:
            self._recorder.update(step=result.step, loss=result.loss)
            self._state_written = time.monotonic()

    def _after_step(self) -> None:
        if self._is_evaluation_step():
            self._evaluate()
            self._phase("training")
        every = self.recipe.train.checkpoint_every
        if every and self.step % every == 0:
            self._checkpoint()

    def _is_evaluation_step(self) -> bool:
        every = self.recipe.evaluation.every
        return bool(every) and self.step % every == 0

    def _evaluate(self) -> None:
        section = self.recipe.evaluation
        documents = self._data.validation[: section.max_rows or None]
        self._take_results(wait=True)
        self._phase("evaluating")
        if documents:
            began = time.perf_counter()
            loss, count = self._engine.held_out_loss(documents, self.recipe.train.micro_batch_tokens)
            seconds = time.perf_counter() - began
            self._recorder.emit(EvaluationDone(step=self.step, loss=loss, tokens=count, seconds=seconds))
            self._recorder.update(evaluation_loss=loss if np.isfinite(loss) else None)
        self._samples()

    def _samples(self) -> None:
        section = self.recipe.evaluation
        if not section.prompts:
            return
        self._take_results(wait=True)
        system = self.recipe.data.system_prompt
        start = [{"role": "system", "content": system}] if system else []
        prompts = [self._prompt_ids([*start, {"role": "user", "content": prompt}]) for prompt in section.prompts]
        replies = self._engine.replies(prompts, section.sample_tokens)
        for prompt, reply in zip(section.prompts, replies, strict=True):
            self._recorder.emit(SampleDone(step=self.step, prompt=prompt, reply=reply.text, stopped=reply.stopped))

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a prompt, rendered with the template that the data is trained with."""
        text = self._data.template.render(messages, add_generation_prompt=True)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _checkpoint(self) -> None:
        self._take_results(wait=True)
        if self.step == self._saved_step:
            return
        began = time.perf_counter()
        position = checkpoints.Position(
            step=self.step,
            micro_batches=self._micro_batches,
            tokens=self._tokens,
            dataset_hash=self._data.dataset_hash,
            recipe_hash=recipe_hash(self.recipe),
            threads=self._threads,
            precision=self._precision,
            layout=self._engine.layout,
            device=self.device.type,
            engine=self._engine.name,
        )
        self._recorder.sync()
        folder = checkpoints.save_checkpoint(self.paths.checkpoints, self._engine, position, self.device)
        self._saved_step = self.step
        checkpoints.prune_checkpoints(self.paths.checkpoints, self.recipe.train.keep_checkpoints)
        path = folder.relative_to(self.paths.root).as_posix()
        self._recorder.emit(CheckpointSaved(step=self.step, path=path, seconds=time.perf_counter() - began))

    def _seed_everything(self) -> None:
        seed = self.recipe.train.seed
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def _phase(self, phase: Any, detail: str = "") -> None:
        self._recorder.emit(PhaseChanged(phase=phase, detail=detail))
        self._recorder.update(phase=phase)

    def _warn(self, code: str, message: str) -> None:
        self._recorder.emit(Warned(code=code, message=message))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "burnish": burnish_version()}
    for package in ("torch", "transformers", "peft"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
