"""One training session: it carries a run from its folder to its last step."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.facts.exports import export_text
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_hash
from burnish_engine.contract.run.card import CardGuard, CardRollback
from burnish_engine.contract.run.events import BestKept, CheckpointSaved, GuardReported, RolledBack
from burnish_engine.data.tokens.pack import DATA_ORDER
from burnish_engine.models.device.device import cap_memory, choose_precision, choose_threads, lease_name
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine, HalfUpdatedError, StepResult
from burnish_engine.train.base.random_state import seed_everything
from burnish_engine.train.choose_engine import make_engine
from burnish_engine.train.guard.guard import Guard, GuardInputs
from burnish_engine.train.guard.record import GuardRecord, read_record
from burnish_engine.train.guard.watch import Trouble
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.announce import data_ready, run_started
from burnish_engine.train.lifecycle.card import CardKeeper
from burnish_engine.train.lifecycle.card_facts import base_files, data_files, export_choices, new_card
from burnish_engine.train.lifecycle.commands import CommandInbox, Ending
from burnish_engine.train.lifecycle.dry_run import dry_run, has_room, is_worthwhile
from burnish_engine.train.lifecycle.early_stopping import EarlyStopping
from burnish_engine.train.lifecycle.fit import check_fit
from burnish_engine.train.lifecycle.inputs import RunInputs
from burnish_engine.train.lifecycle.measure import Measure
from burnish_engine.train.lifecycle.progress import Progress
from burnish_engine.train.lifecycle.validator import Validator
from burnish_engine.train.recovery.recovery import RecoveringEngine, load_recovering, release

_LOWER_RATE = 0.5  # factor on the learning rates after a rollback


class Session:
    """Trains one run in this process: `run` does everything, and the attributes hold its state.

    Args:
        paths: run folder.
        recipe: frozen recipe.
        anyway: whether to train although the plan says that the run does not fit.
        stopping: function called at once when a signal asks to stop; the step is finished and saved first.

    Attributes:
        device: device to train on; set it before `run`.
        step: optimizer steps done.
        measure: measurements of the run; None before it uses its device.
        ending_text: sentence on how the run ended, such as early stopping; empty where there is none.
    """

    def __init__(
        self, paths: RunPaths, recipe: Recipe, *, anyway: bool = False, stopping: Callable[[], None] | None = None
    ) -> None:
        self.paths, self.recipe = paths, recipe
        self._anyway, self._stopping = anyway, stopping
        self.device = torch.device("cpu")
        self.step = 0
        self.measure: Measure | None = None
        self.ending_text = ""
        self._trouble: Trouble | None = None
        self._rollback: CardRollback | None = None
        self._micro_batches = 0
        self._tokens = 0
        self._saved_step = -1
        self._control = ControlReader(paths.control)

    def run(self, recorder: Recorder) -> Ending | None:
        """Train to the end of the recipe.

        Returns:
            How the user ended the run early, or None when all steps were made.

        Raises:
            BurnishError: Any expected failure; saved checkpoints stay.
        """
        self._recorder = recorder
        resume = self._find_checkpoint()
        self._load(resume)
        try:
            return self._train_and_save(recorder)
        finally:
            self._card.close()
            if hasattr(self, "_engine"):  # where loading it again failed there is none
                self._engine.close()

    def _train_and_save(self, recorder: Recorder) -> Ending | None:
        inbox = CommandInbox(
            self._control, recorder, checkpoint=self._checkpoint, sample=self._samples, stopping=self._stopping
        )
        with inbox.signals():
            self._guard.begin(self._engine.apply, self.step)
            self._dry_run_if_long()
            if self.step == 0:
                self._evaluate()
            self._recorder.phase("training")
            ending = self._train(inbox)
            if ending == "stop_now":
                return ending
            if ending is None and not self._validator.is_due(self.step):
                self._evaluate()
            self._recorder.phase("saving")
            self._checkpoint()
            self._guard.end(self._engine.apply, self.step, whole=ending is None)
            best = self._place_result()
            trained = self.paths.adapter if self._engine.trains == "adapter" else None
            exports = export_choices(self._inputs.source, self.recipe, trained)
            self._card.complete(self._engine, ending, self.step, self._tokens, best, exports)
        return ending

    def _train(self, inbox: CommandInbox) -> Ending | None:
        """Make all steps, or the steps until the run has to end."""
        while True:
            ending = None
            while self._has_more_steps() and not (ending := inbox.poll()):
                if self._train_step():
                    self._after_step()
                else:
                    self._reload_after_half_update()
            self._collect_results(wait=True)
            if self._trouble is None or ending == "stop_now":
                return ending
            self._roll_back(self._trouble)
            if ending:
                return ending

    def _has_more_steps(self) -> bool:
        return self.step < self._inputs.budget.steps and not self._stopping_early.is_over and self._trouble is None

    def _place_result(self) -> EarlyStopping | None:
        """Write the run's result: the current weights, or the best of early stopping, which is then returned."""
        target, early = self.paths.root / self._engine.trains, self._stopping_early
        if early.is_over:
            self.ending_text = early.text
        if not early.is_on or not early.best.known or early.best.step == self.step:
            checkpoints.save_adapter(self._engine, target)
            return None
        early.place(target)
        step, loss = early.best.step or 0, early.best.loss
        self._recorder.emit(BestKept(step=step, loss=loss, at_step=self.step, stopped_early=early.is_over))
        return early

    def _find_checkpoint(self) -> Path | None:
        found, broken = checkpoints.find_checkpoint(self.paths.checkpoints)
        for name in broken:
            self._recorder.warn("checkpoint_broken", f"The checkpoint {name} is not whole and is not used.")
        return found

    def _load(self, resume: Path | None) -> None:
        recipe, recorder = self.recipe, self._recorder
        position = checkpoints.read_position(resume) if resume else None
        self._order = position.data_order if position else DATA_ORDER
        self._threads = position.threads if position else choose_threads(recipe.devices.threads)
        torch.set_num_threads(self._threads)
        seed_everything(recipe.train.seed)
        inputs = self._inputs = RunInputs.load(self.paths, recipe, recorder, fresh=resume is None, order=self._order)
        # A run that already trained here is not refused for what happens to be free now, only warned about.
        anyway = self._anyway or resume is not None
        predicted = check_fit(recipe, inputs.data.facts, recorder, anyway=anyway, fresh=resume is None)
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
        planned = predicted.coverage if predicted and resume is None else None
        pad = inputs.tokenizer.pad_token_id
        facts = GuardInputs(recipe, inputs.data, inputs.stream, inputs.budget.steps, self._precision, pad, planned)
        self._guard = Guard(facts, self._report_verdict)
        self._stopping_early = EarlyStopping(recipe.evaluation, self.paths.checkpoints)
        self._validator = Validator(recipe, inputs, recorder)
        self._progress = Progress(recorder, inputs, self.measure, self.device)
        self._load_engine(resume, plan)
        self._card = self._begin_card()

    def _begin_card(self) -> CardKeeper:
        recipe, inputs = self.recipe, self._inputs
        card = new_card(
            self.paths,
            recipe,
            inputs.source,
            inputs.data,
            self._engine,
            device=self.device,
            precision=self._precision,
            threads=self._threads,
            steps=self._inputs.budget.steps,
        )
        if self.step == 0 and (text := export_text(card.exports)):
            self._recorder.warn("exports", text)
        data, base = data_files(recipe), base_files(inputs.source.folder)
        return CardKeeper(self.paths, card, data=data, base=base, step=self.step, warn=self._recorder.warn)

    def _load_engine(self, resume: Path | None, plan: str, rollback: CardRollback | None = None) -> None:
        """Load the model, at the start of the run or at a checkpoint.

        Args:
            resume: checkpoint to continue from; None for the start.
            plan: memory plan, as text.
            rollback: reason for rolling back to that checkpoint; None: no rollback, or one before that checkpoint.
        """
        position = checkpoints.read_position(resume) if resume else None
        record = read_record(position)
        self._guard.restore(record)
        self._stopping_early.best = record.best
        self._rollback = rollback or record.rollback
        recipe, inputs = self._current_recipe(), self._inputs
        name, layout = (position.engine, position.layout) if position else (None, None)

        def load(plan: str, trained: Path | None) -> Engine:
            return make_engine(
                inputs.source,
                recipe,
                inputs.stream,
                inputs.tokenizer,
                precision=self._precision,
                device=self.device,
                adapter=trained,
                name=name,
                layout=layout,
                plan=plan,
            )

        self._engine: RecoveringEngine = load_recovering(
            load, plan, self.device, self._report_smaller_plan, checkpoints.trained_folder(resume) if resume else None
        )
        self._progress.follow(self._engine.name, lambda: self._engine.locked_bytes)
        self._report_notes()
        self.step = self._micro_batches = self._tokens = 0
        self._saved_step = -1
        if resume and position:
            self._restore(resume, position)
        total = inputs.budget.steps
        started = run_started(self.paths.root.name, self.device, self._precision, self._engine.name, position, total)
        self._recorder.emit(started)
        self._recorder.emit(data_ready(inputs.data, inputs.budget))
        self._recorder.update(step=self.step, total_steps=total, device=lease_name(self.device))

    def _start_engine(self) -> None:
        self._engine.start(self.step, self._inputs.budget.steps, self._inputs.budget.micro_batches)

    def _dry_run_if_long(self) -> None:
        """Make a dry run where the run is long enough for one; then prepare the engine for training."""
        budget, stream = self._inputs.budget, self._inputs.stream
        left = budget.steps - self.step
        if is_worthwhile(left, self._predicted_s * left / budget.steps) and has_room(self._engine):
            batch = stream.longest(budget.micro_batches, padded=self._engine.layout == "padded")
            self._recorder.phase("dry_run", f"{batch.tokens:,} tokens, evaluation and save")
            section = self.recipe.train
            dry_run(
                self._engine,
                batch,
                passes=section.accumulation,
                held_out=self._inputs.held_out,
                budget=section.micro_batch_tokens,
                checkpoints_folder=self.paths.checkpoints,
                device=self.device,
            )
            self._report_notes()
        self._start_engine()

    def _reload_after_half_update(self) -> None:
        """Resume from the last checkpoint with a smaller plan, after memory ran out in the middle of an update."""
        self._collect_results(wait=True)
        if self._trouble is None:  # else there is more to go back for
            self._load_engine(self._find_checkpoint(), self._unload_engine())
            self._start_engine()
            self._recorder.phase("training")

    def _unload_engine(self) -> str:
        """Close the engine and free its memory; return its memory plan."""
        plan = self._engine.memory_plan
        self._engine.close()
        del self._engine
        release(self.device)
        seed_everything(self.recipe.train.seed)
        return plan

    def _roll_back(self, trouble: Trouble) -> None:
        """Roll back to the last checkpoint before the trouble, and continue at a lower learning rate.

        Later checkpoints are deleted, and the checkpoint is saved again with the decision. A run killed before that
        meets the same trouble again and decides the same.
        """
        folder = self.paths.checkpoints
        good, _ = checkpoints.find_checkpoint(folder, before=trouble.first)
        to_step = checkpoints.read_position(good).step if good else 0
        checkpoints.discard_from(folder, to_step + 1)
        rollback = CardRollback(step=trouble.step, to_step=to_step, factor=_LOWER_RATE, reason=trouble.reason)
        self._load_engine(good, self._unload_engine(), rollback)
        self._trouble = None
        self._recorder.emit(RolledBack(**rollback.model_dump()))
        self._card.rolled_back(rollback)
        self._start_engine()
        self._saved_step = -1
        self._checkpoint()
        self._recorder.phase("training")

    def _current_recipe(self) -> Recipe:
        """Return the recipe with the current learning rate, which a rollback lowers."""
        section, factor = self.recipe.train, self._rollback.factor if self._rollback else 1.0
        lower = section.model_copy(update={"learning_rate": factor * section.learning_rate})
        return self.recipe.model_copy(update={"train": lower})

    def _report_notes(self) -> None:
        """Emit the engine's notes as warnings."""
        while self._engine.notes:
            self._recorder.warn("engine", self._engine.notes.pop(0))

    def _report_smaller_plan(self, message: str) -> None:
        assert self.measure is not None
        self.measure.not_as_planned()
        self._recorder.warn("smaller_plan", message)

    def _restore(self, resume: Path, position: checkpoints.Position) -> None:
        checkpoints.refuse_changes(
            position, self._inputs.data.dataset_hash, recipe_hash(self.recipe), self.paths.recipe
        )
        if position.device != self.device.type:
            self._recorder.warn(
                "device",
                f"This run was started on {position.device} and goes on on {self.device.type}: losses will differ in "
                "their last digits from an uninterrupted run's.",
            )
        checkpoints.restore_training(resume, self._engine, self.device)
        self.step = self._saved_step = position.step
        self._micro_batches, self._tokens = position.micro_batches, position.tokens

    def _train_step(self) -> bool:
        """Make one step; return False where the update broke off half-way, so that the engine is of no more use."""
        try:
            self._engine.queue_step()
        except HalfUpdatedError:  # what it holds on to goes with it, before the model is loaded again
            return False
        self.step += 1
        self._collect_results()
        self._report_notes()
        return True

    def _collect_results(self, *, wait: bool = False) -> None:
        """Record the results of finished steps; with `wait`, of all steps so far."""
        for result in self._engine.results(wait=wait):
            if self._trouble is None:  # what came after it is not kept
                self._record(result)

    def _record(self, result: StepResult) -> None:
        first = self._micro_batches
        self._micro_batches += result.micro_batches
        self._tokens += result.tokens
        self._progress.step(result, self._micro_batches)
        try:
            self._trouble = self._guard.step(result, first)
            if self._trouble and (self._rollback or not self.recipe.guard.rollback):
                raise self._diverged(self._trouble)
        except DivergedError:
            self.step = result.step  # later ones may be queued
            raise

    def _diverged(self, trouble: Trouble) -> DivergedError:
        again = ""
        if back := self._rollback:
            again = f" The run had gone back to step {back.to_step} before, at {back.factor:g} times the learning rate."
        return DivergedError(
            f"{trouble.reason}{again}",
            f"Start a new run with a lower train.learning_rate (now {self._current_recipe().train.learning_rate:g})"
            f"{'' if self._precision == 'fp32' else ', or in fp32'}; earlier checkpoints are kept.",
        )

    def _after_step(self) -> None:
        if self._guard.is_due(self.step):
            self._collect_results(wait=True)
            if self._trouble is None:
                self._guard.after_warmup(self._engine.apply, self.step)
        if self._validator.is_due(self.step):
            self._evaluate()
            self._recorder.phase("training")
        every = self.recipe.train.checkpoint_every
        if every and self.step % every == 0:
            self._checkpoint()

    def _evaluate(self) -> None:
        self._collect_results(wait=True)
        if self._trouble:
            return
        self._recorder.phase("evaluating")
        loss = self._validator.held_out_loss(self._engine, self.step)
        if self.step and loss is not None:
            self._guard.evaluated(self.step, loss)
            if self._stopping_early.is_on:
                self._stopping_early.evaluated(self._engine, self.step, loss)
        self._samples()

    def _samples(self) -> None:
        self._collect_results(wait=True)
        self._validator.samples(self._engine, self.step)

    def _checkpoint(self) -> None:
        self._collect_results(wait=True)
        if self.step == self._saved_step or self._trouble:
            return
        began = time.perf_counter()
        position = checkpoints.Position(
            step=self.step,
            micro_batches=self._micro_batches,
            tokens=self._tokens,
            dataset_hash=self._inputs.data.dataset_hash,
            recipe_hash=recipe_hash(self.recipe),
            threads=self._threads,
            precision=self._precision,
            layout=self._engine.layout,
            device=self.device.type,
            engine=self._engine.name,
            guard=self._guard_record().model_dump_json(),
            data_order=self._order,
        )
        self._recorder.sync()
        folder = checkpoints.save_checkpoint(self.paths.checkpoints, self._engine, position, self.device)
        self._saved_step = self.step
        if not self._guard.watch.suspects(self.step):  # else the run may have to go back to an older one
            checkpoints.prune_checkpoints(self.paths.checkpoints, self.recipe.train.keep_checkpoints)
        if self._stopping_early.is_on:
            kept = checkpoints.positions(self.paths.checkpoints)
            self._stopping_early.prune(read_record(position).best.step for position in kept)
        path = folder.relative_to(self.paths.root).as_posix()
        self._recorder.emit(CheckpointSaved(step=self.step, path=path, seconds=time.perf_counter() - began))

    def _guard_record(self) -> GuardRecord:
        return self._guard.record_state(GuardRecord(best=self._stopping_early.best, rollback=self._rollback))

    def _report_verdict(self, event: GuardReported, card: CardGuard) -> None:
        self._recorder.emit(event)
        self._recorder.update(verdict=card.sentence)
        self._card.guarded(card)
