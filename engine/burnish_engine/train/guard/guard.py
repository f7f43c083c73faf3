"""The guard of a run: when it looks, what it concludes, and where that is written down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from burnish_engine.contract.card import CardGuard
from burnish_engine.contract.coverage import Coverage
from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.events import GuardReported, Verdict
from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.prepare import Prepared
from burnish_engine.data.tokenize import Document
from burnish_engine.train.engine import Engine, StepResult
from burnish_engine.train.guard import findings, probes
from burnish_engine.train.guard.batch_checks import PASSES, check_batches, check_rows
from burnish_engine.train.guard.checksums import changed, checksums
from burnish_engine.train.guard.findings import CHECKS, Check, Finding, foremost
from burnish_engine.train.guard.look import Audit, look_into
from burnish_engine.train.guard.record import GuardRecord, ToldFinding
from burnish_engine.train.guard.watch import Trouble, Watch
from burnish_engine.train.schedule import warmup_steps
from burnish_engine.train.stream import BatchStream

When = Literal["before", "after_warmup", "training", "end"]
Run = Callable[[str, Callable[[Engine], list[Finding]]], list[Finding]]
"""Does something with the engine itself, again with a smaller plan where memory runs out: (what, action)."""
Report = Callable[[GuardReported, CardGuard], None]

_FIRST_STEPS, _MOST_STEPS = 3, 20  # after which what is trained must have changed
_LEAST_FOR_OUTPUT = 5  # steps after which the output must have changed
_SURE_IN_16_BITS = 20  # steps; fewer may move less than 16 bits show


@dataclass(frozen=True)
class Facts:
    """What the guard looks at beside the engine.

    Attributes:
        recipe: The run.
        data: What it learns from.
        stream: Its passes.
        total_steps: Of the run.
        precision: What is computed in.
        pad: The tokenizer's fill token.
        planned: coverage that the plan announced; None: it announced none, or the run goes on.
    """

    recipe: Recipe
    data: Prepared
    stream: BatchStream
    total_steps: int
    precision: str
    pad: int | None
    planned: Coverage | None = None


class Guard:
    """Looks at a run before, while and after it trains.

    Args:
        facts: Of the run.
        report: Writes a verdict down.

    Attributes:
        watch: What every step says.
    """

    def __init__(self, facts: Facts, report: Report) -> None:
        self._facts, self._report = facts, report
        section = facts.recipe.guard
        self.watch = Watch(section, facts.precision)
        self._action, self._probes = section.action, section.probes and section.action != "off"
        self._rows: Sequence[Document] = probes.choose_rows(facts.data.train) if self._probes else []
        self._passed: list[Check] = []
        self._failed: set[Check] = set()
        self._told: Finding | None = None
        self._trained: dict[str, int] = {}
        self._frozen: dict[str, int] = {}
        self._began = self._due = 0
        self._gradient_checks: list[Check] = []
        self._measured: list[Check] = []
        self._coverage = Coverage(kinds=())

    def begin(self, run: Run, step: int) -> None:
        """Look before training starts, or goes on after `step` steps.

        Args:
            run: How to get at the engine.
            step: Optimizer steps done.

        Raises:
            DivergedError: The run would not do its job.
        """
        section, total = self._facts.recipe.train, self._facts.total_steps
        self._began = step
        wait = min(max(warmup_steps(section, total) + 1 - step, _FIRST_STEPS), _MOST_STEPS)
        self._due = step + wait
        if self._action == "off":
            return
        began = time.perf_counter()
        found = run("the first look of the guard", lambda engine: self._look_before(engine, fresh=step == 0))
        checks: list[Check] = ["no_targets", "labels", "padding", "end_token", *self._measured, *self._gradient_checks]
        checks += ["coverage"] if self._facts.planned else []
        self._conclude("before", step, found, checks, began)

    def is_due(self, step: int) -> bool:
        """Whether it is time for the look after warmup: at this step, or later where no step was taken yet."""
        return self._probes and bool(self._due) and step >= self._due

    def after_warmup(self, run: Run, step: int) -> None:
        """Look whether steps changed what they should, and nothing else. All results must have been taken in.

        Raises:
            DivergedError: They did not.
        """
        if self.watch.state.taken < min(_FIRST_STEPS, step) or not self.watch.state.rate_seen:
            return  # in fp16 the first steps may all be skipped
        began = time.perf_counter()
        self._due = 0
        found = run("the guard's look after warmup", lambda engine: self._look_after(engine, step))
        checks: list[Check] = ["unchanged", *self._base_checks, *self._gradient_checks]
        self._conclude("after_warmup", step, found, checks, began)

    def step(self, result: StepResult, first: int) -> Trouble | None:
        """Take in a step's result.

        Args:
            result: It.
            first: Number of its first micro-batch, from the start of the run.

        Returns:
            Trouble where there were too many bad steps.

        Raises:
            DivergedError: The run does not do its job.
        """
        trouble = self.watch.step(result)
        if self._action != "off" and trouble is None:
            stream = self._facts.stream
            places = range(first, first + result.micro_batches)
            tokens, supervised = (sum(count(place) for place in places) for count in (stream.tokens, stream.supervised))
            self._conclude("training", result.step, self.watch.check(result, tokens, supervised))
        return trouble

    def evaluated(self, step: int, loss: float) -> None:
        """Take in a held-out loss."""
        finding = self.watch.evaluated(loss)
        if finding and self._action != "off":
            self._conclude("training", step, [finding])

    def end(self, run: Run, step: int, *, whole: bool) -> None:
        """Look at what came out.

        Args:
            run: How to get at the engine.
            step: Optimizer steps made.
            whole: The run was not ended early by a person.

        Raises:
            DivergedError: It is not what the run was for.
        """
        if self._action == "off" or not step or step == self._began:
            return
        began = time.perf_counter()
        rate = self.watch.no_rate() if whole else None
        found = [rate] if rate else []
        self._measured = []
        if self._probes:
            found += run("the last look of the guard", lambda engine: self._look_at_end(engine, step, whole=whole))
        self._conclude("end", step, found, [*self.watch.seen(), *self._measured], began)

    def keep(self, record: GuardRecord) -> GuardRecord:
        """The record with what the guard knows."""
        told = ToldFinding(**asdict(self._told)) if self._told else None
        return record.model_copy(update={"watch": self.watch.state, "told": told, "passed": list(self._passed)})

    def restore(self, record: GuardRecord) -> None:
        """Go on from what a checkpoint kept."""
        self.watch.state = record.watch.model_copy(deep=True)
        self._told = Finding(**record.told.model_dump()) if record.told else None
        self._failed = {self._told.check} if self._told else set()
        self._passed = list(record.passed)

    # What is looked at

    def _look_at_rows(self) -> Iterable[Finding]:
        facts = self._facts
        budget = facts.stream.budget()
        batches = [facts.stream[index] for index in range(min(PASSES, budget.micro_batches))]
        yield from check_rows(facts.data.train, facts.data.end_token_ids, facts.pad)
        yield from check_batches(facts.data.train, batches, facts.data.end_token_ids)

    def _look_at_coverage(self) -> Iterable[Finding]:
        planned = self._facts.planned
        if planned and set(planned.kinds) != set(self._coverage.kinds):
            yield findings.coverage(self._coverage.text, planned.text)

    def _look_before(self, engine: Engine, *, fresh: bool) -> list[Finding]:
        self._coverage = engine.coverage
        told = [*self._look_at_coverage(), *self._look_at_rows()]
        if not self._probes or any(finding.stops for finding in told):
            return told
        look, at = look_into(engine), self._at(fresh=fresh)
        self._frozen = checksums(look.frozen())
        self._trained = checksums(look.trained())
        if not self._rows:
            return told
        self._measured = ["not_finite", "zero_loss"] if len(self._rows) == 1 else ["not_finite", "zero_loss", "leak"]
        found, audit = probes.check_loss(look, self._rows, at)
        if not found:
            found += self._gradients(audit)
        return [*told, *found, *probes.check_leaks(look, self._rows, at)]

    def _look_after(self, engine: Engine, step: int) -> list[Finding]:
        look = look_into(engine)
        found = self._unchanged(engine, step) + self._base(engine)
        if self._rows and not found:
            audit = look.audit(probes.pass_of(self._rows))
            if not audit.counted:
                return [findings.no_targets("a pass over rows with learned tokens holds")]
            found += self._gradients(audit)
            if found and found[0].check == "detached" and probes.same_output(look, self._rows):
                found = [findings.same_output(len(self._rows), step, stops=True)]  # which explains it
        return found

    def _look_at_end(self, engine: Engine, step: int, *, whole: bool) -> list[Finding]:
        look, made = look_into(engine), step - self._began
        found = self._base(engine)
        self._measured = list(self._base_checks)
        if whole and self._due and self.watch.state.taken:  # the run was too short for the look after warmup
            found += self._unchanged(engine, step)
            self._measured.append("unchanged")
        rows = probes.choose_rows(self._facts.data.validation) or self._rows
        if whole and made >= _LEAST_FOR_OUTPUT and rows and not found:
            same = probes.same_output(look, rows)
            self._measured += [] if same is None else ["same_output"]
            if same:
                sure = self._facts.precision == "fp32" or made >= _SURE_IN_16_BITS
                found.append(findings.same_output(len(rows), step, stops=sure))
        return found

    def _gradients(self, audit: Audit) -> list[Finding]:
        finite = all(math.isfinite(part.norm) for part in audit.parts.values())
        # In fp16 the loss scale may still have to be found; elsewhere the steps themselves will tell.
        self._gradient_checks = ["zero_gradient", "detached"] if finite else []
        return probes.check_gradients(audit) if finite else []

    def _unchanged(self, engine: Engine, step: int) -> list[Finding]:
        look = look_into(engine)
        still, of = probes.unmoved_groups(look, self._trained, checksums(look.trained()))
        partly = engine.trains == "adapter" and not self._facts.recipe.masking.acts
        if partly and len(still) < of:
            still = [name for name in still if "expert" not in name]  # one that no token was sent to stays as it is
        if not still or (len(still) < of and not partly):
            return []
        return [findings.unchanged(step - self._began, still, of)]

    def _base(self, engine: Engine) -> list[Finding]:
        names = changed(self._frozen, checksums(look_into(engine).frozen()))
        return [findings.base_changed(names)] if names else []

    @property
    def _base_checks(self) -> list[Check]:
        return ["base_changed"] if self._frozen else []

    def _at(self, *, fresh: bool) -> probes.Circumstances:
        return probes.Circumstances(self._facts.precision, self._facts.recipe.adapter.dropout, fresh)

    # What follows

    def _conclude(
        self, when: When, step: int, found: list[Finding], checks: Iterable[Check] = (), began: float | None = None
    ) -> None:
        """Write the verdict down; of several findings the one that explains the others. Each is told once."""
        known = self._failed
        new = [finding for finding in found if finding.check not in known]
        failed = known | {finding.check for finding in new}
        self._failed = failed
        self._passed = [check for check in CHECKS if check in {*self._passed, *checks} and check not in failed]
        finding = foremost(new)
        if finding is None and began is None:
            return
        told = foremost([one for one in (self._told, finding) if one])
        self._told = told
        verdict: Verdict = "training" if told is None else "not_training" if told.stops else "suspicious"
        reached = self._coverage.text if self._facts.recipe.adapter.method != "full" else ""
        words = told.sentence if told else _all_well(when, len(self._passed), reached)
        card = CardGuard(
            verdict=verdict,
            sentence=words,
            check=told.check if told else "",
            cause=told.cause if told else "",
            remedy=told.remedy if told else "",
            passed=list(self._passed),
            coverage=reached,
        )
        seconds = time.perf_counter() - began if began is not None else 0.0
        self._report(GuardReported(step=step, when=when, seconds=seconds, **card.model_dump()), card)
        if finding and finding.stops and self._action == "stop":
            raise DivergedError(f"{finding.sentence} {finding.cause}", finding.remedy)


def _all_well(when: When, checks: int, reached: str) -> str:
    words = {
        "before": "Nothing speaks against training",
        "after_warmup": "It is training",
        "training": "It is training",
        "end": "It trained",
    }
    covered = f" The adapter reaches {reached}." if reached else ""
    return f"{words[when]}: {checks} checks found nothing.{covered}"
