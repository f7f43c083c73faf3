"""One training session: it carries a run from its first step, or a checkpoint, to its last step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch

from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.garbage import collect_as_usual
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import CardGuard, CardRollback
from burnish_engine.contract.run.events import BestKept, GuardReported, RolledBack
from burnish_engine.models.transformers_path.peft_probe import why_peft_reads_less
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import HalfUpdatedError, StepResult
from burnish_engine.train.base.policy import ReplyFigures
from burnish_engine.train.base.random_state import seed_everything
from burnish_engine.train.base.reply_stream import OwnReplyStream
from burnish_engine.train.engine_loader import EngineLoader
from burnish_engine.train.evaluation.forgetting_meter import ForgettingMeter
from burnish_engine.train.evaluation.task_meter import TaskMeter
from burnish_engine.train.evaluation.validator import Validator
from burnish_engine.train.guard.guard import Guard, GuardInputs, Report
from burnish_engine.train.guard.watch import Trouble
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.announce import report_notes, warn_of_idle_ranks
from burnish_engine.train.lifecycle.card import CardKeeper
from burnish_engine.train.lifecycle.card_facts import export_choices
from burnish_engine.train.lifecycle.commands import CommandInbox, Ending
from burnish_engine.train.lifecycle.dry_run import dry_run_if_long
from burnish_engine.train.lifecycle.early_stopping import EarlyStopping
from burnish_engine.train.lifecycle.progress import StepRecorder, Tally
from burnish_engine.train.lifecycle.run_setup import RunSetup, newest_checkpoint
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.recovery.checkpoint_writer import CheckpointWriter
from burnish_engine.train.recovery.recovery import RecoveringEngine
from burnish_engine.train.recovery.rollback import choose_rollback, diverged
from burnish_engine.train.reference import provide_reference
from burnish_engine.train.reinforce.rollouts import Rollouts


@dataclass
class Session:
    """Everything that the steps of one run need, loaded by `open`; `train` makes them.

    Attributes:
        setup: settings and inputs of the run.
        recorder: recorder of events and state.
        tally: counts of the run.
        control: reader of the user's commands.
        stopping: function called at once when a signal asks to stop; the step is finished and saved first.
        loader: loader of the engine, for going back to a checkpoint.
        engine: engine that trains.
        card: keeper of the run's card.
        guard: checks on the run.
        early: early stopping.
        validator: periodic evaluation.
        forgetting: measurement of what the model forgets.
        task: score of the task.
        progress: recorder of finished steps.
        writer: writer of checkpoints.
        rollback: rollback of the run; None before there was one.
        trouble: bad steps to go back from; None where there are none.
        reply_figures: figures of the steps on the present round of replies.
    """

    setup: RunSetup
    recorder: Recorder
    tally: Tally
    control: ControlReader
    stopping: Callable[[], None] | None
    loader: EngineLoader
    engine: RecoveringEngine
    card: CardKeeper
    guard: Guard
    early: EarlyStopping
    validator: Validator
    forgetting: ForgettingMeter
    task: TaskMeter
    progress: StepRecorder
    writer: CheckpointWriter
    rollback: CardRollback | None
    trouble: Trouble | None = None
    reply_figures: list[ReplyFigures] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        paths: RunPaths,
        recipe: Recipe,
        recorder: Recorder,
        tally: Tally,
        *,
        control: ControlReader,
        device: torch.device,
        anyway: bool = False,
        stopping: Callable[[], None] | None = None,
        ranks: Ranks | None = None,
    ) -> Self:
        """Prepare a run and load its engine, at its newest intact checkpoint where there is one.

        Args:
            paths: run folder.
            recipe: frozen recipe.
            recorder: recorder of events and state.
            tally: tally of the run, filled from here on.
            control: reader of the user's commands.
            device: device to train on.
            anyway: whether to train although the plan says that the run does not fit.
            stopping: function called at once when a signal asks to stop.
            ranks: other ranks that share the steps; None: this process makes them alone.

        Raises:
            BurnishError: Any expected failure; saved checkpoints stay.
        """
        here = 0 if ranks and not ranks.is_local else ranks.size if ranks else 1
        setup = RunSetup.prepare(paths, recipe, recorder, tally, device=device, anyway=anyway, gpus=here)
        if ranks:
            if not (ranks.is_local and setup.recipe.devices.shares):
                setup.measure.not_as_planned()  # the plan is one machine's, or one GPU's
            warn_of_idle_ranks(setup.recipe, ranks.size, recorder)
        progress = StepRecorder(recorder, setup.inputs, setup.measure, device, setup.time_left)
        loader = EngineLoader(setup, recorder, tally, progress, ranks)
        engine, record = loader.load(setup.resume, setup.plan)
        provide_reference(setup, engine, recorder)
        card = CardKeeper.begin(setup, engine, recorder, step=tally.step)
        guard = Guard(_guard_inputs(setup), _report_to(recorder, card), recorder.check)
        early = EarlyStopping(recipe.evaluation, paths.checkpoints)
        guard.restore(record)
        early.best = record.best
        return cls(
            setup=setup,
            recorder=recorder,
            tally=tally,
            control=control,
            stopping=stopping,
            loader=loader,
            engine=engine,
            card=card,
            guard=guard,
            early=early,
            validator=Validator(recipe, setup.inputs, recorder, setup.samples),
            forgetting=ForgettingMeter(recipe, setup.inputs, recorder),
            task=TaskMeter(recipe, setup.inputs, recorder),
            progress=progress,
            writer=CheckpointWriter(setup, recorder, tally, guard, early),
            rollback=record.rollback,
        )

    @property
    def ending_text(self) -> str:
        """Sentence on why the run ended before its last step, such as early stopping; empty where there is none."""
        return self.early.text if self.early.is_over else ""

    def close(self) -> None:
        """Stop all threads of the session."""
        self.card.close()
        self.engine.close()
        if self.setup.inputs.rollouts:
            self.setup.inputs.rollouts.rewards.close()

    def train(self) -> Ending | None:
        """Train to the end of the recipe.

        Returns:
            How the user ended the run early, or None when all steps were made.

        Raises:
            BurnishError: Any expected failure; saved checkpoints stay.
        """
        collect_as_usual()
        inbox = CommandInbox(
            self.control,
            self.recorder,
            checkpoint=self._checkpoint,
            sample=self._samples,
            smaller_plan=lambda: self.engine.shrink(),  # noqa: PLW0108  it may be another engine
            stopping=self.stopping,
        )
        with inbox.signals():
            self.recorder.phase("checking")
            self.guard.begin(self.engine.apply, self.tally.step)
            dry_run_if_long(self.engine, self.setup, self.recorder, self.tally.step)
            self._start_engine()
            evaluated = self.tally.step if self.tally.step and self._take_up_score(inbox) else -1
            if self.tally.step == 0:
                self._evaluate(inbox)
            self.recorder.phase("training")
            ending = self._make_steps(inbox)
            while self.trouble and ending != "stop_now":
                self._roll_back(self.trouble)
                ending = ending or self._make_steps(inbox)
            if ending is None and self.tally.step != evaluated and not self.validator.is_due(self.tally.step):
                self._evaluate(inbox)
                ending = inbox.ending
            if ending == "stop_now":
                return ending
            self.recorder.phase("saving")
            self._checkpoint()
            self.guard.end(self.engine.apply, self.tally.step, whole=ending is None)
            best = self._place_result()
            self._complete_card(ending, best)
        return ending

    # Before, between and after steps

    def _start_engine(self) -> None:
        if self.setup.inputs.rollouts:
            return  # each step on replies of the model begins anew
        budget = self.setup.inputs.budget
        self.engine.start(self.tally.step, budget.steps, budget.micro_batches)

    def _make_steps(self, inbox: CommandInbox) -> Ending | None:
        """Make steps until all are made, the run has to end, or there is trouble."""
        rollouts = self.setup.inputs.rollouts
        while self._has_more_steps() and not inbox.poll():
            made = self._train_on_replies(rollouts, inbox) if rollouts else self._train_step()
            if made:
                self._after_step(inbox)
            elif not inbox.ending:
                self._reload_after_half_update()
        self._collect_results(wait=True)
        return inbox.ending

    def _has_more_steps(self) -> bool:
        return self.tally.step < self.setup.inputs.budget.steps and not self.early.is_over and self.trouble is None

    def _train_step(self) -> bool:
        """Make one step; return False where the update broke off half-way, so that the engine is of no more use."""
        try:
            self.engine.queue_step()
        except HalfUpdatedError:  # what it holds on to goes with it, before the model is loaded again
            return False
        self.tally.step += 1
        self._collect_results()
        report_notes(self.engine, self.recorder)
        return True

    def _train_on_replies(self, rollouts: Rollouts, inbox: CommandInbox) -> bool:
        """Let the model write replies, and make the steps on them; return False where nothing came of it.

        That is where the run shall end, and the replies are written again later, or where an update broke off.
        """
        setup, step = self.setup, self.tally.step
        updates, inputs = setup.recipe.reinforce.updates, setup.inputs
        self.recorder.phase("writing")
        written = rollouts.write(
            self.engine,
            step // updates,
            ends=inbox.poll,
            progress=lambda done, total: self.recorder.progress(done, total, "replies"),
        )
        if written is None:
            return False
        self.recorder.phase("training")
        self.reply_figures.clear()
        for update in range(updates):
            batches = written.of_update(update)
            if isinstance(inputs.stream, OwnReplyStream):
                inputs.stream.put(self.tally.micro_batches, batches, self.tally.step + 1)
            self.engine.start(self.tally.step, inputs.budget.steps, len(batches), batches)
            if not self._train_step():
                return False
            self._collect_results(wait=True)
        if self.trouble is None:
            event = written.event(self.tally.step, self.reply_figures)
            self.recorder.emit(event)
            self.guard.rewarded(event)
        return True

    def _after_step(self, inbox: CommandInbox) -> None:
        step = self.tally.step
        if self.guard.is_due(step):
            self._collect_results(wait=True)
            if self.trouble is None:
                self.guard.after_warmup(self.engine.apply, step)
        if self.validator.is_due(step):
            self._evaluate(inbox)
            self.recorder.phase("training")
        if self.writer.is_due() and inbox.ending != "stop_now":
            self._checkpoint()

    def _evaluate(self, inbox: CommandInbox) -> None:
        self._collect_results(wait=True)
        if self.trouble:
            return
        step = self.tally.step
        self.recorder.phase("evaluating")
        loss = self.validator.held_out_loss(self.engine, step)
        self.forgetting.measure(self.engine, step)
        if self.setup.recipe.preference.is_active and self.validator.newest and loss is not None:
            self.guard.evaluated_preferences(self.validator.newest)
        if self.setup.recipe.preference.learns_rewards and self.validator.newest:
            self.guard.evaluated_rewards(self.validator.newest)
        if step and loss is not None:
            self.guard.evaluated(step, loss)
            if self.early.is_on:
                self.early.evaluated(self.engine, step, loss)
        self._score(inbox)

    def _score(self, inbox: CommandInbox) -> None:
        """Score the task and let the model answer the fixed prompts, each where it is due, unless the run shall end."""
        score = self.task.measure(self.engine, self.tally.step, self.early, inbox.poll)
        if score is not None and self.setup.recipe.preference.learns_rewards:
            self.guard.scored(self.tally.step, score.share)
        if inbox.ending is None and (self.early.is_over or self.validator.samples_are_due(self.tally.step)):
            self._samples()

    def _take_up_score(self, inbox: CommandInbox) -> bool:
        """Score the task now where the run was stopped in the middle of that; return whether it was."""
        run, step = read_run(self.setup.paths.events), self.tally.step
        evaluated = run.evaluations.step.count_up_to(step) > run.evaluations.step.count_up_to(step - 1)
        missing = evaluated and self.task.is_due(step, self.early) and step not in {one.step for one in run.task_scores}
        if missing:
            self._score(inbox)
        return missing

    def _samples(self) -> None:
        self._collect_results(wait=True)
        if self.setup.recipe.evaluation.prompts:
            self.recorder.phase("sampling")
        self.validator.samples(self.engine, self.tally.step)

    def _checkpoint(self) -> None:
        """Write a checkpoint, unless there is one of this step or the steps are to be undone."""
        self._collect_results(wait=True)
        if self.tally.step != self.tally.saved_step and self.trouble is None:
            self.writer.write(self.engine, self.rollback)

    def _place_result(self) -> EarlyStopping | None:
        """Write the run's result: the current weights, or the best of early stopping, which is then returned."""
        target, early, step = self.setup.paths.root / self.engine.facts.trains, self.early, self.tally.step
        if not early.is_on or not early.best.known or early.best.step == step:
            checkpoints.save_adapter(self.engine, target)
            return None
        early.place(target)
        best, loss = early.best.step or 0, early.best.loss
        self.recorder.emit(BestKept(step=best, loss=loss, at_step=step, stopped_early=early.is_over))
        self.recorder.update(evaluation_loss=loss)
        if self.setup.recipe.preference.is_active:
            run = read_run(self.setup.paths.events)
            accuracy, margin = (run.of_result(one) for one in (run.evaluations.accuracy, run.evaluations.margin))
            self.recorder.update(accuracy=accuracy, margin=margin)
        return early

    def _complete_card(self, ending: Ending | None, best: EarlyStopping | None) -> None:
        setup, tally = self.setup, self.tally
        source = setup.inputs.source
        trained = setup.paths.adapter if self.engine.facts.trains == "adapter" else None
        exports = export_choices(source, setup.recipe, trained)
        is_mixture = bool(source.config.get("num_experts_per_tok"))  # PEFT converts the configs of mixtures alone
        unread = why_peft_reads_less(source.config, trained) if trained and is_mixture else ""
        if unread:
            self.recorder.warn("peft", unread)
        run = read_run(setup.paths.events)
        forgetting = run.forgetting
        if forgetting and forgetting.is_marked:
            self.recorder.warn("forgetting", forgetting.warning)
        self.card.complete(self.engine, ending, tally.step, tally.tokens, best, exports, forgetting, run.task)

    # Results of steps

    def _collect_results(self, *, wait: bool = False) -> None:
        """Record the results of finished steps; with `wait`, of all steps so far."""
        for result in self.engine.results(wait=wait):
            if self.trouble is None:  # what came after it is not kept
                self._record(result)

    def _record(self, result: StepResult) -> None:
        tally, recipe = self.tally, self.setup.recipe
        first = tally.micro_batches
        tally.micro_batches += result.micro_batches
        tally.tokens += result.tokens
        self.progress.step(result, tally.micro_batches)
        if result.replies and result.supervised:
            self.reply_figures.append(result.replies)
        try:
            self.trouble = self.guard.step(result, first)
            if self.trouble and (self.rollback or not recipe.guard.rollback):
                raise diverged(self.trouble, self.rollback, recipe, self.setup.precision)
        except DivergedError:
            tally.step = result.step  # later ones may be queued
            raise

    # Back to a checkpoint

    def _roll_back(self, trouble: Trouble) -> None:
        """Go back to the last checkpoint before the trouble, and continue at a lower learning rate."""
        good, rollback = choose_rollback(self.setup.paths.checkpoints, trouble)
        self._reload(good, rollback)
        self.trouble = None
        self.recorder.emit(RolledBack(**rollback.model_dump()))
        self.card.rolled_back(rollback)
        self._start_engine()
        self.writer.write(self.engine, self.rollback)  # saved together with the decision to roll back
        self.recorder.phase("training")

    def _reload_after_half_update(self) -> None:
        """Go back to the newest checkpoint with a smaller plan, after memory ran out in the middle of an update."""
        self._collect_results(wait=True)
        if self.trouble is None:  # else there is more to go back for
            self._reload(newest_checkpoint(self.setup.paths, self.recorder))
            self._start_engine()
            self.recorder.phase("training")

    def _reload(self, checkpoint: Path | None, rollback: CardRollback | None = None) -> None:
        """Load the engine again at a checkpoint; None: at the start of the run. The model before it is freed first."""
        plan = self.engine.facts.memory_plan
        self.engine.unload()
        seed_everything(self.setup.recipe.train.seed)
        self.engine, record = self.loader.load(checkpoint, plan, rollback)
        self.guard.restore(record)
        self.early.best, self.rollback = record.best, record.rollback


def _guard_inputs(setup: RunSetup) -> GuardInputs:
    inputs = setup.inputs
    steps, pad = inputs.budget.steps, inputs.tokenizer.pad_token_id
    return GuardInputs(setup.recipe, inputs.data, inputs.stream, steps, setup.precision, pad, setup.planned_coverage)


def _report_to(recorder: Recorder, card: CardKeeper) -> Report:
    """Make the function that records the guard's verdicts."""

    def report(event: GuardReported, verdict: CardGuard) -> None:
        recorder.emit(event)
        recorder.update(verdict=verdict.sentence, suspicious=verdict.verdict != "training")
        card.guarded(verdict)

    return report
