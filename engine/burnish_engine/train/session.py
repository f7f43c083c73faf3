"""One training session: from a run folder to its last step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.events import CheckpointSaved, EvaluationDone, PhaseChanged, SampleDone, StepDone, Warned
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import recipe_hash
from burnish_engine.data.prepare import Prepared, prepare
from burnish_engine.data.tokenize import Document
from burnish_engine.models.device import cap_memory, choose_precision, choose_threads, lease_name, memory_bytes
from burnish_engine.models.source import open_model
from burnish_engine.models.tokenizer import load_tokenizer
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.held_out import save_held_out
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.announce import data_ready, run_started
from burnish_engine.train.card import CardKeeper
from burnish_engine.train.card_facts import base_files, data_files, new_card
from burnish_engine.train.choose_engine import make_engine
from burnish_engine.train.commands import Desk, Ending
from burnish_engine.train.dry_run import dry_run, has_room, is_worthwhile
from burnish_engine.train.engine import Engine, HalfUpdatedError, StepResult
from burnish_engine.train.fit import check_fit
from burnish_engine.train.measure import Measure
from burnish_engine.train.random_state import seed_everything
from burnish_engine.train.recovery import load_recovering, release
from burnish_engine.train.spill_watch import SpillWatch
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
        measure: What the run takes; None before it uses its device.
    """

    def __init__(
        self, paths: RunPaths, recipe: Recipe, *, anyway: bool = False, stopping: Callable[[], None] | None = None
    ) -> None:
        self.paths, self.recipe = paths, recipe
        self._anyway, self._stopping = anyway, stopping
        self.device = torch.device("cpu")
        self.step = 0
        self.measure: Measure | None = None
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
            self._card.close()
            if hasattr(self, "_engine"):  # where loading it again failed there is none
                self._engine.close()

    def _carry_out(self, recorder: Recorder) -> Ending | None:
        desk = Desk(self._control, recorder, checkpoint=self._checkpoint, sample=self._samples, stopping=self._stopping)
        with desk.signals():
            self._try_longest()
            if self.step == 0:
                self._evaluate()
            self._phase("training")
            ending = None
            while self.step < self._budget.steps and not (ending := desk.attend()):
                if self._train_step():
                    self._after_step()
                else:
                    self._go_back()
            self._take_results(wait=True)
            if ending == "stop_now":
                return ending
            if ending is None and not self._is_evaluation_step():
                self._evaluate()
            self._phase("saving")
            self._checkpoint()
            checkpoints.save_adapter(self._engine, self.paths.root / self._engine.trains)
            self._card.complete(self._engine, ending, self.step, self._tokens)
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
        seed_everything(self.recipe.train.seed)
        self._phase("loading", recipe.model.path)
        self._source = open_model(recipe.model.path)
        self._tokenizer = load_tokenizer(self._source)
        self._phase("preparing")
        self._data: Prepared = prepare(recipe, self._tokenizer)
        for message in self._data.facts.warnings:
            self._warn("data", message)
        if not resume:
            documents = [document.input_ids.tolist() for document in self._data.validation]
            save_held_out(self.paths, documents, self._data.validation_conversations)
        self._stream = BatchStream(self._data.train, recipe.train)
        self._budget: Budget = self._stream.budget()
        # A run that already trained here is not refused for what happens to be free now, only warned about.
        anyway = self._anyway or resume is not None
        predicted = check_fit(recipe, self._data.facts, recorder, anyway=anyway)
        self._predicted_s = (predicted.seconds or 0.0) if predicted else 0.0
        self.measure = Measure(self.device)
        if resume:  # it goes on with whatever plan it had
            self.measure.not_as_planned()
        if self.device.type == "cuda":
            torch.cuda.init()
            torch.cuda.reset_peak_memory_stats(self.device)
            cap_memory(self.device, recipe.memory.budget_gib, self.measure.beside)
        self._precision = position.precision if position else choose_precision(recipe.train.precision, self.device)
        promised = predicted.memory_plan if predicted else None
        plan = position.plan if position else promised.model_dump_json() if promised else ""
        self._load_engine(resume, plan)
        self._card = self._begin_card()

    def _begin_card(self) -> CardKeeper:
        recipe, source = self.recipe, self._source
        card = new_card(
            self.paths,
            recipe,
            source,
            self._data,
            self._engine,
            device=self.device,
            precision=self._precision,
            threads=self._threads,
            steps=self._budget.steps,
        )
        data, base = data_files(recipe), base_files(source.folder)
        return CardKeeper(self.paths, card, data=data, base=base, step=self.step, warn=self._warn)

    def _load_engine(self, resume: Path | None, plan: str) -> None:
        """Load the model, at the start or where a checkpoint stands."""
        position = checkpoints.read_position(resume) if resume else None
        name, layout = (position.engine, position.layout) if position else (None, None)

        def load(plan: str, trained: Path | None) -> Engine:
            return make_engine(
                self._source,
                self.recipe,
                self._stream,
                self._tokenizer,
                precision=self._precision,
                device=self.device,
                adapter=trained,
                name=name,
                layout=layout,
                plan=plan,
            )

        self._engine: Engine = load_recovering(
            load, plan, self.device, self._tell_smaller, checkpoints.trained_folder(resume) if resume else None
        )
        assert self.measure is not None
        self.measure.engine = self._engine.name
        self._spill = SpillWatch(self.device, locked=lambda: self._engine.locked_bytes)
        self._tell_notes()
        self.step = self._micro_batches = self._tokens = 0
        self._saved_step = -1
        if resume and position:
            self._restore(resume, position)
        self._recorder.emit(
            run_started(
                self.paths.root.name, self.device, self._precision, self._engine.name, position, self._budget.steps
            )
        )
        self._recorder.emit(data_ready(self._data, self._budget))
        self._recorder.update(step=self.step, total_steps=self._budget.steps, device=lease_name(self.device))

    def _start_engine(self) -> None:
        self._engine.start(self.step, self._budget.steps, self._budget.micro_batches)

    def _try_longest(self) -> None:
        """The dry run, where the run is long enough for one; then training may begin."""
        left = self._budget.steps - self.step
        if is_worthwhile(left, self._predicted_s * left / self._budget.steps) and has_room(self._engine):
            batch = self._stream.longest(self._budget.micro_batches, padded=self._engine.layout == "padded")
            self._phase("dry_run", f"{batch.tokens:,} tokens, evaluation and save")
            section = self.recipe.train
            dry_run(
                self._engine,
                batch,
                passes=section.accumulation,
                held_out=self._held_out(),
                budget=section.micro_batch_tokens,
                checkpoints_folder=self.paths.checkpoints,
                device=self.device,
            )
            self._tell_notes()
        self._start_engine()

    def _go_back(self) -> None:
        """Memory ran out in the middle of an update: begin anew, with the smaller plan, where the run was saved."""
        self._take_results(wait=True)
        plan = self._engine.memory_plan
        self._engine.close()
        del self._engine
        release(self.device)
        seed_everything(self.recipe.train.seed)
        self._load_engine(self._find_checkpoint(), plan)
        self._start_engine()
        self._phase("training")

    def _tell_notes(self) -> None:
        """Pass on what the engine has to say."""
        while self._engine.notes:
            self._warn("engine", self._engine.notes.pop(0))

    def _tell_smaller(self, message: str) -> None:
        assert self.measure is not None
        self.measure.not_as_planned()
        self._warn("smaller_plan", message)

    def _restore(self, resume: Path, position: checkpoints.Position) -> None:
        checkpoints.refuse_changes(position, self._data.dataset_hash, recipe_hash(self.recipe), self.paths.recipe)
        if position.device != self.device.type:
            self._warn(
                "device",
                f"This run was started on {position.device} and goes on on {self.device.type}: losses will differ in "
                "their last digits from an uninterrupted run's.",
            )
        checkpoints.restore_training(resume, self._engine, self.device)
        self.step = self._saved_step = position.step
        self._micro_batches, self._tokens = position.micro_batches, position.tokens

    def _train_step(self) -> bool:
        """Whether the engine can go on from here."""
        try:
            self._engine.queue_step()
        except HalfUpdatedError:  # what it holds on to goes with it, before the model is loaded again
            return False
        self.step += 1
        self._take_results()
        self._tell_notes()
        return True

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
        assert self.measure is not None
        self.measure.step(result.tokens, seconds)
        if spilled := self._spill.step(seconds, result.tokens):
            self._warn("spill", spilled)
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
                process_bytes=self.measure.process_bytes,
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

    def _held_out(self) -> Sequence[Document]:
        return self._data.validation[: self.recipe.evaluation.max_rows or None]

    def _evaluate(self) -> None:
        documents = self._held_out()
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

    def _phase(self, phase: Any, detail: str = "") -> None:
        self._recorder.emit(PhaseChanged(phase=phase, detail=detail))
        self._recorder.update(phase=phase)

    def _warn(self, code: str, message: str) -> None:
        self._recorder.emit(Warned(code=code, message=message))
