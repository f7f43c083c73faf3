"""The guard of a run: it schedules the checks, draws one verdict from their findings, and reports it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.facts.coverage import Coverage
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import CardGuard
from burnish_engine.contract.run.events import EvaluationDone, GuardReported, RewardsGiven, Verdict
from burnish_engine.contract.wording.tables import CHECKS, Check
from burnish_engine.data.prepare import PreparedDataset
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import Engine, StepResult
from burnish_engine.train.base.schedule import warmup_steps
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.guard import findings, probe_checks
from burnish_engine.train.guard.batch_checks import PASSES, check_batches, check_rendering, check_rows
from burnish_engine.train.guard.checksums import changed, checksums
from burnish_engine.train.guard.choose_probe import probe_for
from burnish_engine.train.guard.engine_probe import Audit
from burnish_engine.train.guard.findings import GuardFinding, foremost
from burnish_engine.train.guard.preference_watch import PreferenceWatch
from burnish_engine.train.guard.record import GuardRecord
from burnish_engine.train.guard.reward_watch import RewardWatch
from burnish_engine.train.guard.watch import Trouble, Watch

When = Literal["before", "after_warmup", "training", "end"]
Run = Callable[[str, Callable[[Engine], list[GuardFinding]]], list[GuardFinding]]
"""Function (what, action) that runs an action on the engine, again with a smaller plan where memory runs out."""
Report = Callable[[GuardReported, CardGuard], None]
Progress = Callable[[int, int, Check], object]
"""Function that receives the number of checks made, that of all checks, and the check that begins."""

_FIRST_STEPS, _MOST_STEPS = 3, 20  # least and most steps after which the trained weights must have changed
_LEAST_FOR_OUTPUT = 5  # steps after which the output must have changed
_SURE_IN_16_BITS = 20  # steps; fewer may move less than 16 bits show


@dataclass(frozen=True)
class GuardInputs:
    """Facts of a run that the guard uses beside the engine.

    Attributes:
        recipe: recipe of the run.
        data: tokenized rows.
        stream: micro-batches of the run.
        total_steps: optimizer steps of the run.
        precision: compute precision, "fp32", "bf16" or "fp16".
        pad: the tokenizer's padding token; None where it has none.
        planned: coverage that the plan announced; None: it announced none, or the run is resumed.
    """

    recipe: Recipe
    data: PreparedDataset
    stream: BatchStream
    total_steps: int
    precision: str
    pad: int | None
    planned: Coverage | None = None


class Guard:
    """Checks a run before, during and after training.

    Args:
        facts: facts of the run.
        report: function that records a verdict.
        progress: function that records how far the checks before training are.

    Attributes:
        watch: checks on the numbers of every step.
        preference: checks on the figures of preferences.
        reward: checks on rewards, where replies of the model are learned from.
    """

    def __init__(self, facts: GuardInputs, report: Report, progress: Progress = lambda *_: None) -> None:
        self._facts, self._report, self._progress = facts, report, progress
        section = facts.recipe.guard
        self.watch = Watch(section, facts.precision)
        warmup = warmup_steps(facts.recipe.train, facts.total_steps)
        self.preference = PreferenceWatch(facts.recipe.preference, warmup)
        self.reward = RewardWatch(facts.recipe.reinforce)
        self._action, self._probes = section.action, section.probes and section.action != "off"
        self._rows: Sequence[Document] = probe_checks.choose_rows(facts.data.train) if self._probes else []
        self._passed: list[Check] = []
        self._failed: set[Check] = set()
        self._reported: GuardFinding | None = None
        self._trained: dict[str, int] = {}
        self._frozen: dict[str, int] = {}
        self._began = self._due = 0
        self._gradient_checks: list[Check] = []
        self._measured: list[Check] = []
        self._coverage = Coverage(kinds=())

    def begin(self, run: Run, step: int) -> None:
        """Check the run before training starts, or continues after `step` steps.

        Args:
            run: function that runs an action on the engine.
            step: optimizer steps done.

        Raises:
            DivergedError: A finding stops the run.
        """
        section, total = self._facts.recipe.train, self._facts.total_steps
        self._began = step
        wait = min(max(warmup_steps(section, total) + 1 - step, _FIRST_STEPS), _MOST_STEPS)
        self._due = step + wait
        if self._action == "off":
            return
        began = time.perf_counter()
        fresh = step == 0 and not self._facts.recipe.adapter.start
        found = run("the first look of the guard", lambda engine: self._check_before(engine, fresh=fresh))
        checks: list[Check] = ["no_targets", "labels", "unwritten", "padding", "end_token"]
        checks += [*self._measured, *self._gradient_checks]
        checks += ["coverage"] if self._facts.planned else []
        self._conclude("before", step, found, checks, began)

    def is_due(self, step: int) -> bool:
        """Return whether the check after warmup is due: at this step, or later where no step was taken yet."""
        return self._probes and bool(self._due) and step >= self._due

    def after_warmup(self, run: Run, step: int) -> None:
        """Check that steps changed the trained weights and nothing else. All results must have been collected.

        Raises:
            DivergedError: A finding stops the run.
        """
        if self.watch.state.taken < min(_FIRST_STEPS, step) or not self.watch.state.rate_seen:
            return  # in fp16 the first steps may all be skipped
        began = time.perf_counter()
        self._due = 0
        found = run("the guard's look after warmup", lambda engine: self._check_after(engine, step))
        checks: list[Check] = ["unchanged", *self._base_checks, *self._gradient_checks]
        self._conclude("after_warmup", step, found, checks, began)

    def step(self, result: StepResult, first: int) -> Trouble | None:
        """Check a step's result.

        Args:
            result: result of the step.
            first: number of its first micro-batch, from the start of the run.

        Returns:
            Trouble where too many steps were bad; else None.

        Raises:
            DivergedError: A finding stops the run.
        """
        trouble = self.watch.step(result)
        if self._action != "off" and trouble is None:
            stream = self._facts.stream
            places = range(first, first + result.micro_batches)
            tokens, supervised = (sum(count(place) for place in places) for count in (stream.tokens, stream.supervised))
            found = [*self.watch.check(result, tokens, supervised), *self.preference.step(result)]
            self._conclude("training", result.step, found)
        return trouble

    def evaluated(self, step: int, loss: float) -> None:
        """Check a held-out loss against the earlier ones."""
        if self._facts.recipe.preference.learns_rewards:
            return  # that loss is not what is learned
        finding = self.watch.evaluated(loss)
        if finding and self._action != "off":
            self._conclude("training", step, [finding])

    def evaluated_preferences(self, event: EvaluationDone) -> None:
        """Check the figures of preferences on held-out rows against the earlier ones."""
        found = self.preference.evaluated(event)
        if self._action != "off":
            self._conclude("training", event.step, found)

    def rewarded(self, event: RewardsGiven) -> None:
        """Check the rewards of a round of replies.

        Raises:
            DivergedError: A finding stops the run.
        """
        found = self.reward.rewarded(event)
        if self._action != "off":
            self._conclude("training", event.step, found)

    def scored(self, step: int, share: float) -> None:
        """Check a held-out score against the rewards so far."""
        found = self.reward.scored(share)
        if self._action != "off":
            self._conclude("training", step, found)

    def evaluated_rewards(self, event: EvaluationDone) -> None:
        """Check how far from the base a model that learns from rewards is."""
        found = self.reward.evaluated(event.kl_to_base)
        if self._action != "off":
            self._conclude("training", event.step, found)

    def end(self, run: Run, step: int, *, whole: bool) -> None:
        """Check the trained model.

        Args:
            run: function that runs an action on the engine.
            step: optimizer steps made.
            whole: whether the run was not ended early by the user.

        Raises:
            DivergedError: A finding stops the run.
        """
        if self._action == "off" or not step or step == self._began:
            return
        began = time.perf_counter()
        rate = self.watch.no_rate() if whole else None
        found = [rate] if rate else []
        self._measured = []
        if self._probes:
            found += run("the last look of the guard", lambda engine: self._check_end(engine, step, whole=whole))
        self._conclude(
            "end",
            step,
            found,
            [*self.watch.seen(), *self.preference.seen(), *self.reward.seen(), *self._measured],
            began,
        )

    def record_state(self, record: GuardRecord) -> GuardRecord:
        """Return the record with the guard's state filled in."""
        return record.model_copy(
            update={
                "watch": self.watch.state,
                "preference": self.preference.state,
                "reward": self.reward.state,
                "told": self._reported,
                "passed": list(self._passed),
            }
        )

    def restore(self, record: GuardRecord) -> None:
        """Restore the guard's state from a checkpoint's record."""
        self.watch.state = record.watch.model_copy(deep=True)
        self.preference.state = record.preference.model_copy(deep=True)
        self.reward.state = record.reward.model_copy(deep=True)
        self._reported = record.told
        self._failed = {self._reported.check} if self._reported else set()
        self._passed = list(record.passed)

    # Checks

    def _check_rows(self) -> Iterable[GuardFinding]:
        facts = self._facts
        budget = facts.stream.budget()
        batches = [facts.stream[index] for index in range(min(PASSES, budget.micro_batches))]
        yield from check_rendering(facts.data.facts.report)
        yield from check_rows(facts.data.train, facts.data.end_token_ids, facts.pad)
        yield from check_batches(facts.data.train, batches, facts.data.end_token_ids)

    def _check_coverage(self) -> Iterable[GuardFinding]:
        planned = self._facts.planned
        if planned and set(planned.kinds) != set(self._coverage.kinds):
            yield findings.coverage(self._coverage.text, planned.text)

    def _check_before(self, engine: Engine, *, fresh: bool) -> list[GuardFinding]:
        planned = self._checks_before()

        def begins(check: Check) -> None:
            self._progress(planned.index(check), len(planned), check)

        self._coverage = engine.facts.coverage
        begins(planned[0])
        early = [*self._check_coverage(), *self._check_rows()]
        if not self._probes or any(finding.stops for finding in early):
            return early
        probe, at, rows = probe_for(engine), self._conditions(fresh=fresh), self._rows
        begins("base_changed")
        self._frozen = checksums(probe.frozen())
        self._trained = checksums(probe.trained())
        if not rows:
            return early
        self._measured = ["not_finite", "zero_loss"] if len(rows) == 1 else ["not_finite", "zero_loss", "leak"]
        begins("zero_gradient")
        audit = probe.audit(probe_checks.pass_of(rows))
        begins("not_finite")
        alone = probe_checks.measure_alone(probe, rows)
        found = probe_checks.check_loss(audit, alone, rows, at)
        if not found:
            found += self._gradients(audit)
        if len(rows) > 1:
            begins("leak")
        return [*early, *found, *probe_checks.check_leaks(probe, alone, rows, at)]

    def _checks_before(self) -> list[Check]:
        """List the checks before training in the order in which they are made.

        Of frozen weights only the checksums are taken, which later ones are compared with.
        """
        checks: list[Check] = ["coverage"] if self._facts.planned else []
        checks += ["no_targets", "unwritten", "padding", "labels", "end_token"]
        if self._probes:
            checks.append("base_changed")
        if self._rows:
            checks += ["zero_gradient", "detached", "not_finite", "zero_loss"]
        return [*checks, "leak"] if len(self._rows) > 1 else checks

    def _check_after(self, engine: Engine, step: int) -> list[GuardFinding]:
        probe = probe_for(engine)
        found = self._unchanged(engine, step) + self._base(engine)
        if self._rows and not found:
            audit = probe.audit(probe_checks.pass_of(self._rows))
            if not audit.counted:
                return [findings.no_targets("a pass over rows with learned tokens holds")]
            found += self._gradients(audit)
            if found and found[0].check == "detached" and probe_checks.same_output(probe, self._rows):
                # The unchanged output explains the other findings.
                found = [findings.same_output(len(self._rows), step, stops=True)]
        return found

    def _check_end(self, engine: Engine, step: int, *, whole: bool) -> list[GuardFinding]:
        probe, made = probe_for(engine), step - self._began
        found = self._base(engine)
        self._measured = list(self._base_checks)
        if whole and self._due and self.watch.state.taken:  # the run was too short for the look after warmup
            found += self._unchanged(engine, step)
            self._measured.append("unchanged")
        rows = probe_checks.choose_rows(self._facts.data.validation) or self._rows
        if whole and made >= _LEAST_FOR_OUTPUT and rows and not found:
            same = probe_checks.same_output(probe, rows)
            self._measured += [] if same is None else ["same_output"]
            if same:
                sure = self._facts.precision == "fp32" or made >= _SURE_IN_16_BITS
                found.append(findings.same_output(len(rows), step, stops=sure))
        return found

    def _gradients(self, audit: Audit) -> list[GuardFinding]:
        finite = all(math.isfinite(part.norm) for part in audit.tensors.values())
        # In fp16 the loss scale may still have to be found; elsewhere the steps themselves will show.
        self._gradient_checks = ["zero_gradient", "detached"] if finite else []
        return probe_checks.check_gradients(audit) if finite else []

    def _unchanged(self, engine: Engine, step: int) -> list[GuardFinding]:
        probe = probe_for(engine)
        still, of = probe_checks.unmoved_groups(probe, self._trained, checksums(probe.trained()))
        partly = engine.facts.trains == "adapter" and not self._facts.recipe.masking.is_active
        if partly and len(still) < of:
            still = [name for name in still if "expert" not in name]  # one that no token was sent to stays as it is
        if not still or (len(still) < of and not partly):
            return []
        return [findings.unchanged(step - self._began, still, of)]

    def _base(self, engine: Engine) -> list[GuardFinding]:
        names = changed(self._frozen, checksums(probe_for(engine).frozen()))
        return [findings.base_changed(names)] if names else []

    @property
    def _base_checks(self) -> list[Check]:
        return ["base_changed"] if self._frozen else []

    def _conditions(self, *, fresh: bool) -> probe_checks.ProbeConditions:
        return probe_checks.ProbeConditions(self._facts.precision, self._facts.recipe.adapter.dropout, fresh)

    # Verdict

    def _conclude(
        self, when: When, step: int, found: list[GuardFinding], checks: Iterable[Check] = (), began: float | None = None
    ) -> None:
        """Report the verdict: of several findings, the one that explains the others. Each check is reported once."""
        known = self._failed
        new = [finding for finding in found if finding.check not in known]
        failed = known | {finding.check for finding in new}
        self._failed = failed
        self._passed = [check for check in CHECKS if check in {*self._passed, *checks} and check not in failed]
        finding = foremost(new)
        if finding is None and began is None:
            return
        shown = foremost([one for one in (self._reported, finding) if one])
        self._reported = shown
        verdict: Verdict = "training" if shown is None else "not_training" if shown.stops else "suspicious"
        reached = self._coverage.text if self._facts.recipe.adapter.method != "full" else ""
        text = shown.sentence if shown else _all_well(when, len(self._passed), reached)
        card = CardGuard(
            verdict=verdict,
            sentence=text,
            check=shown.check if shown else "",
            cause=shown.cause if shown else "",
            remedy=shown.remedy if shown else "",
            passed=list(self._passed),
            coverage=reached,
        )
        seconds = time.perf_counter() - began if began is not None else 0.0
        self._report(GuardReported(step=step, when=when, seconds=seconds, **card.model_dump()), card)
        if finding and finding.stops and self._action == "stop":
            raise DivergedError(f"{finding.sentence} {finding.cause}", finding.remedy)


def _all_well(when: When, checks: int, reached: str) -> str:
    text = {
        "before": "Nothing speaks against training",
        "after_warmup": "It is training",
        "training": "It is training",
        "end": "It trained",
    }
    covered = f" The adapter reaches {reached}." if reached else ""
    return f"{text[when]}: {checks} checks found nothing.{covered}"
