"""One training session of the plain path: from a run folder to its last step."""

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
from burnish_engine.models import plain
from burnish_engine.models.device import choose_precision, choose_threads, describe, lease_name, memory_bytes
from burnish_engine.models.generate import generate_replies
from burnish_engine.models.source import open_model
from burnish_engine.models.tokenizer import load_tokenizer
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.held_out import save_held_out
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.commands import Desk, Ending
from burnish_engine.train.evaluate import held_out_loss
from burnish_engine.train.fit import check_fit
from burnish_engine.train.optimizer import make_optimizer
from burnish_engine.train.plain_step import Layout, choose_layout, summed_loss
from burnish_engine.train.schedule import learning_rate
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
        desk = Desk(self._control, recorder, checkpoint=self._checkpoint, sample=self._samples, stopping=self._stopping)
        with desk.signals():
            if self.step == 0:
                self._evaluate()
            self._phase("training")
            ending = None
            while self.step < self._budget.steps and not (ending := desk.attend()):
                self._train_step()
                self._after_step()
            if ending == "stop_now":
                return ending
            if ending is None and not self._is_evaluation_step():
                self._evaluate()
            self._phase("saving")
            self._checkpoint()
            checkpoints.save_adapter(self._model, self.paths.adapter)
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
        base = plain.load_base(source, self._precision, self.device)
        skipped = plain.skipped_targets(base, recipe.adapter)
        if skipped:
            self._warn("targets", f"This model has no layers named {', '.join(skipped)}; they get no adapter.")
        self._tokenizer = tokenizer
        if position:
            self._layout: Layout = "packed" if position.layout == "packed" else "padded"
        else:
            self._layout = choose_layout(base, base.config.vocab_size, self.device, recipe.train.pack)
        if recipe.train.pack and self._layout == "padded":
            self._warn(
                "padded",
                "This architecture carries state from one packed row into the next, so rows are padded.",
            )
        if resume:
            self._model = plain.load_adapter(base, resume / "adapter", trainable=True)
        else:
            self._model = plain.attach_adapter(base, recipe.adapter, recipe.train.seed)
        if recipe.train.recompute:
            self._model.enable_input_require_grads()
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._model.train()
        self._parameters = plain.trainable_parameters(self._model)
        self._optimizer = make_optimizer(recipe.train, self._parameters)
        if resume and position:
            self._restore(resume, position)
        self._announce(recorder, position)

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
        checkpoints.restore_training(resume, self._model, self._optimizer, self.device)
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
                engine="plain",
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
        began = time.perf_counter()
        section = self.recipe.train
        count = min(section.accumulation, self._budget.micro_batches - self._micro_batches)
        batches = [self._stream[self._micro_batches + offset] for offset in range(count)]
        supervised = sum(batch.supervised_tokens for batch in batches)
        total = 0.0
        for batch in batches:
            if not batch.supervised_tokens:
                continue
            # Divided by the supervised tokens of the whole optimizer step: how rows fall into passes must not matter.
            loss = summed_loss(self._model, batch, self.device, self._layout) / max(supervised, 1)
            loss.backward()
            total += float(loss.detach())
        rate = learning_rate(section, self.step + 1, self._budget.steps)
        norm = self._clip(section.max_grad_norm) if supervised else 0.0
        if not (np.isfinite(total) and np.isfinite(norm)):
            raise DivergedError(
                f"At step {self.step + 1} the loss is {total} and the gradient norm {norm}; the step was not taken.",
                f"Start a new run with a lower train.learning_rate (now {section.learning_rate:g})"
                f"{'' if self._precision == 'fp32' else ', or in fp32'}; earlier checkpoints are kept.",
            )
        if supervised:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._micro_batches += count
        tokens = sum(batch.tokens for batch in batches)
        self._tokens += tokens
        seconds = time.perf_counter() - began
        self._step_seconds.append(seconds)
        mean_seconds = sum(self._step_seconds) / len(self._step_seconds)
        self._recorder.emit(
            StepDone(
                step=self.step,
                epoch=self._stream.epoch_of(self._micro_batches),
                loss=total,
                learning_rate=rate,
                grad_norm=norm,
                tokens=tokens,
                supervised_tokens=supervised,
                tokens_per_s=tokens / seconds,
                supervised_tokens_per_s=supervised / seconds,
                step_s=seconds,
                memory_bytes=memory_bytes(self.device),
                eta_s=mean_seconds * (self._budget.steps - self.step),
            )
        )
        if time.monotonic() - self._state_written > _STATE_EVERY_S or self.step == self._budget.steps:
            self._recorder.update(step=self.step, loss=total)
            self._state_written = time.monotonic()

    def _clip(self, max_norm: float) -> float:
        values = [value for _, value in self._parameters if value.grad is not None]
        limit = max_norm or float("inf")
        return float(torch.nn.utils.clip_grad_norm_(values, limit))

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
        self._phase("evaluating")
        if documents:
            began = time.perf_counter()
            loss, count = held_out_loss(
                self._model,
                documents,
                budget=self.recipe.train.micro_batch_tokens,
                device=self.device,
                layout=self._layout,
            )
            seconds = time.perf_counter() - began
            self._recorder.emit(EvaluationDone(step=self.step, loss=loss, tokens=count, seconds=seconds))
            self._recorder.update(evaluation_loss=loss if np.isfinite(loss) else None)
        self._samples()

    def _samples(self) -> None:
        section = self.recipe.evaluation
        if not section.prompts:
            return
        system = self.recipe.data.system_prompt
        start = [{"role": "system", "content": system}] if system else []
        replies = generate_replies(
            self._model,
            self._tokenizer,
            [self._prompt_ids([*start, {"role": "user", "content": prompt}]) for prompt in section.prompts],
            max_new_tokens=section.sample_tokens,
        )
        for prompt, reply in zip(section.prompts, replies, strict=True):
            self._recorder.emit(SampleDone(step=self.step, prompt=prompt, reply=reply.text, stopped=reply.stopped))

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a prompt, rendered with the template that the data is trained with."""
        text = self._data.template.render(messages, add_generation_prompt=True)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _checkpoint(self) -> None:
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
            layout=self._layout,
            device=self.device.type,
        )
        self._recorder.sync()
        folder = checkpoints.save_checkpoint(
            self.paths.checkpoints, self._model, self._optimizer, position, self.device
        )
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
