"""One training session: from a run folder to its last step."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from burnish_engine.contract.card import CardGuard, CardRollback
from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.events import BestKept, CheckpointSaved, GuardReported, RolledBack
from burnish_engine.contract.exports import export_words
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import recipe_hash
from burnish_engine.data.pack import DATA_ORDER
from burnish_engine.models.device import cap_memory, choose_precision, choose_threads, lease_name
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.announce import data_ready, run_started
from burnish_engine.train.card import CardKeeper
from burnish_engine.train.card_facts import base_files, data_files, export_choices, new_card
from burnish_engine.train.choose_engine import make_engine
from burnish_engine.train.commands import Desk, Ending
from burnish_engine.train.dry_run import dry_run, has_room, is_worthwhile
from burnish_engine.train.early_stopping import EarlyStopping
from burnish_engine.train.engine import Engine, HalfUpdatedError, StepResult
from burnish_engine.train.fit import check_fit
from burnish_engine.train.guard.guard import Facts, Guard
from burnish_engine.train.guard.record import GuardRecord, read_record
from burnish_engine.train.guard.watch import Trouble
from burnish_engine.train.materials import gather
from burnish_engine.train.measure import Measure
from burnish_engine.train.progress import Progress
from burnish_engine.train.random_state import seed_everything
from burnish_engine.train.readings import Readings
from burnish_engine.train.recovery import RecoveringEngine, load_recovering, release

_LOWER_RATE = 0.5  # of the learning rates, after going back


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
        words: What else there is to say of how it ended; empty where nothing is.
    """

    def __init__(
        self, paths: RunPaths, recipe: Recipe, *, anyway: bool = False, stopping: Callable[[], None] | None = None
    ) -> None:
        self.paths, self.recipe = paths, recipe
        self._anyway, self._stopping = anyway, stopping
        self.device = torch.device("cpu")
        self.step = 0
        self.measure: Measure | None = None
        self.words = ""
        self._trouble: Trouble | None = None
        self._rollback: CardRollback | None = None
        self._micro_batches = 0
        self._tokens = 0
        self._saved_step = -1
        self._control = ControlReader(paths.control)

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
            self._guard.begin(self._engine.apply, self.step)
            self._try_longest()
            if self.step == 0:
                self._evaluate()
            self._recorder.phase("training")
            ending = self._train(desk)
            if ending == "stop_now":
                return ending
            if ending is None and not self._readings.is_due(self.step):
                self._evaluate()
            self._recorder.phase("saving")
            self._checkpoint()
            self._guard.end(self._engine.apply, self.step, whole=ending is None)
            best = self._place_result()
            trained = self.paths.adapter if self._engine.trains == "adapter" else None
            exports = export_choices(self._materials.source, self.recipe, trained)
            self._card.complete(self._engine, ending, self.step, self._tokens, best, exports)
        return ending

    def _train(self, desk: Desk) -> Ending | None:
        """All steps, or up to where the run is to end."""
        while True:
            ending = None
            while self._goes_on() and not (ending := desk.attend()):
                if self._train_step():
                    self._after_step()
                else:
                    self._go_back()
            self._take_results(wait=True)
            if self._trouble is None or ending == "stop_now":
                return ending
            self._roll_back(self._trouble)
            if ending:
                return ending

    def _goes_on(self) -> bool:
        return self.step < self._materials.budget.steps and not self._stopping_early.is_over and self._trouble is None

    def _place_result(self) -> EarlyStopping | None:
        """Write the run's result: what is trained now, or with early stopping the best; that is returned then."""
        target, early = self.paths.root / self._engine.trains, self._stopping_early
        if early.is_over:
            self.words = early.words
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
        made = self._materials = gather(self.paths, recipe, recorder, fresh=resume is None, order=self._order)
        # A run that already trained here is not refused for what happens to be free now, only warned about.
        anyway = self._anyway or resume is not None
        predicted = check_fit(recipe, made.data.facts, recorder, anyway=anyway, fresh=resume is None)
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
        pad = made.tokenizer.pad_token_id
        facts = Facts(recipe, made.data, made.stream, made.budget.steps, self._precision, pad, planned)
        self._guard = Guard(facts, self._tell_verdict)
        self._stopping_early = EarlyStopping(recipe.evaluation, self.paths.checkpoints)
        self._readings = Readings(recipe, made, recorder)
        self._progress = Progress(recorder, made, self.measure, self.device)
        self._load_engine(resume, plan)
        self._card = self._begin_card()

    def _begin_card(self) -> CardKeeper:
        recipe, made = self.recipe, self._materials
        card = new_card(
            self.paths,
            recipe,
            made.source,
            made.data,
            self._engine,
            device=self.device,
            precision=self._precision,
            threads=self._threads,
            steps=self._materials.budget.steps,
        )
        if self.step == 0 and (words := export_words(card.exports)):
            self._recorder.warn("exports", words)
        data, base = data_files(recipe), base_files(made.source.folder)
        return CardKeeper(self.paths, card, data=data, base=base, step=self.step, warn=self._recorder.warn)

    def _load_engine(self, resume: Path | None, plan: str, rollback: CardRollback | None = None) -> None:
        """Load the model, at the start or where a checkpoint stands.

        Args:
            resume: The checkpoint.
            plan: How to use memory.
            rollback: Why the run goes back there; None: it does not, or did before that checkpoint.
        """
        position = checkpoints.read_position(resume) if resume else None
        record = read_record(position)
        self._guard.restore(record)
        self._stopping_early.best = record.best
        self._rollback = rollback or record.rollback
        recipe, made = self._recipe_now(), self._materials
        name, layout = (position.engine, position.layout) if position else (None, None)

        def load(plan: str, trained: Path | None) -> Engine:
            return make_engine(
                made.source,
                recipe,
                made.stream,
                made.tokenizer,
                precision=self._precision,
                device=self.device,
                adapter=trained,
                name=name,
                layout=layout,
                plan=plan,
            )

        self._engine: RecoveringEngine = load_recovering(
            load, plan, self.device, self._tell_smaller, checkpoints.trained_folder(resume) if resume else None
        )
        self._progress.follow(self._engine.name, lambda: self._engine.locked_bytes)
        self._tell_notes()
        self.step = self._micro_batches = self._tokens = 0
        self._saved_step = -1
        if resume and position:
            self._restore(resume, position)
        total = made.budget.steps
        started = run_started(self.paths.root.name, self.device, self._precision, self._engine.name, position, total)
        self._recorder.emit(started)
        self._recorder.emit(data_ready(made.data, made.budget))
        self._recorder.update(step=self.step, total_steps=total, device=lease_name(self.device))

    def _start_engine(self) -> None:
        self._engine.start(self.step, self._materials.budget.steps, self._materials.budget.micro_batches)

    def _try_longest(self) -> None:
        """The dry run, where the run is long enough for one; then training may begin."""
        budget, stream = self._materials.budget, self._materials.stream
        left = budget.steps - self.step
        if is_worthwhile(left, self._predicted_s * left / budget.steps) and has_room(self._engine):
            batch = stream.longest(budget.micro_batches, padded=self._engine.layout == "padded")
            self._recorder.phase("dry_run", f"{batch.tokens:,} tokens, evaluation and save")
            section = self.recipe.train
            dry_run(
                self._engine,
                batch,
                passes=section.accumulation,
                held_out=self._materials.held_out,
                budget=section.micro_batch_tokens,
                checkpoints_folder=self.paths.checkpoints,
                device=self.device,
            )
            self._tell_notes()
        self._start_engine()

    def _go_back(self) -> None:
        """Memory ran out in the middle of an update: begin anew, with the smaller plan, where the run was saved."""
        self._take_results(wait=True)
        if self._trouble is None:  # else there is more to go back for
            self._load_engine(self._find_checkpoint(), self._let_engine_go())
            self._start_engine()
            self._recorder.phase("training")

    def _let_engine_go(self) -> str:
        """Make room for another one; its plan."""
        plan = self._engine.memory_plan
        self._engine.close()
        del self._engine
        release(self.device)
        seed_everything(self.recipe.train.seed)
        return plan

    def _roll_back(self, trouble: Trouble) -> None:
        """Go back to before the trouble, and on at a lower learning rate.

        What came after the checkpoint is deleted, and the checkpoint is saved again with what was decided. Killed
        before that, the run meets the same trouble again and decides the same.
        """
        folder = self.paths.checkpoints
        good, _ = checkpoints.find_checkpoint(folder, before=trouble.first)
        to_step = checkpoints.read_position(good).step if good else 0
        checkpoints.discard_from(folder, to_step + 1)
        rollback = CardRollback(step=trouble.step, to_step=to_step, factor=_LOWER_RATE, reason=trouble.reason)
        self._load_engine(good, self._let_engine_go(), rollback)
        self._trouble = None
        self._recorder.emit(RolledBack(**rollback.model_dump()))
        self._card.rolled_back(rollback)
        self._start_engine()
        self._saved_step = -1
        self._checkpoint()
        self._recorder.phase("training")

    def _recipe_now(self) -> Recipe:
        """The recipe, with the learning rate that the run has come to."""
        section, factor = self.recipe.train, self._rollback.factor if self._rollback else 1.0
        lower = section.model_copy(update={"learning_rate": factor * section.learning_rate})
        return self.recipe.model_copy(update={"train": lower})

    def _tell_notes(self) -> None:
        """Pass on what the engine has to say."""
        while self._engine.notes:
            self._recorder.warn("engine", self._engine.notes.pop(0))

    def _tell_smaller(self, message: str) -> None:
        assert self.measure is not None
        self.measure.not_as_planned()
        self._recorder.warn("smaller_plan", message)

    def _restore(self, resume: Path, position: checkpoints.Position) -> None:
        checkpoints.refuse_changes(
            position, self._materials.data.dataset_hash, recipe_hash(self.recipe), self.paths.recipe
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
            f"Start a new run with a lower train.learning_rate (now {self._recipe_now().train.learning_rate:g})"
            f"{'' if self._precision == 'fp32' else ', or in fp32'}; earlier checkpoints are kept.",
        )

    def _after_step(self) -> None:
        if self._guard.is_due(self.step):
            self._take_results(wait=True)
            if self._trouble is None:
                self._guard.after_warmup(self._engine.apply, self.step)
        if self._readings.is_due(self.step):
            self._evaluate()
            self._recorder.phase("training")
        every = self.recipe.train.checkpoint_every
        if every and self.step % every == 0:
            self._checkpoint()

    def _evaluate(self) -> None:
        self._take_results(wait=True)
        if self._trouble:
            return
        self._recorder.phase("evaluating")
        loss = self._readings.held_out_loss(self._engine, self.step)
        if self.step and loss is not None:
            self._guard.evaluated(self.step, loss)
            if self._stopping_early.is_on:
                self._stopping_early.evaluated(self._engine, self.step, loss)
        self._samples()

    def _samples(self) -> None:
        self._take_results(wait=True)
        self._readings.samples(self._engine, self.step)

    def _checkpoint(self) -> None:
        self._take_results(wait=True)
        if self.step == self._saved_step or self._trouble:
            return
        began = time.perf_counter()
        position = checkpoints.Position(
            step=self.step,
            micro_batches=self._micro_batches,
            tokens=self._tokens,
            dataset_hash=self._materials.data.dataset_hash,
            recipe_hash=recipe_hash(self.recipe),
            threads=self._threads,
            precision=self._precision,
            layout=self._engine.layout,
            device=self.device.type,
            engine=self._engine.name,
            guard=self._record_now().model_dump_json(),
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

    def _record_now(self) -> GuardRecord:
        return self._guard.keep(GuardRecord(best=self._stopping_early.best, rollback=self._rollback))

    def _tell_verdict(self, event: GuardReported, card: CardGuard) -> None:
        self._recorder.emit(event)
        self._recorder.update(verdict=card.sentence)
        self._card.guarded(card)
