"""Checks on rewards, for the ways in which reinforcement goes wrong while its reward rises or stands still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.contract.run.events import RewardsGiven
from burnish_engine.contract.wording.tables import Check
from burnish_engine.train.guard import reward_findings as findings
from burnish_engine.train.guard.findings import GuardFinding

RECENT = 5
"""Rounds that a mean is taken over."""
CONSTANT = 3
"""Rounds after which rewards that never differed will not."""
RISE = 0.5
"""Rise of the mean reward that counts, as a share of the spread of rewards at the beginning."""
FLAT_SCORES = 2
"""Scores in a row that are no better than the first one while the reward rose."""
LONGER, CUT = 2.0, 0.25
"""Growth of the mean length, and of the share of replies that are cut, that together count."""
COLLAPSED, CERTAIN = 0.1, 0.1
"""Entropy of a token as a share of that at the beginning, and in nats, below which no other replies are tried."""


class RewardState(BaseModel):
    """State of the watch; part of every checkpoint."""

    model_config = ConfigDict(extra="ignore")

    rounds: int = 0
    first: list[RewardsGiven] = []
    recent: list[RewardsGiven] = []
    differed: bool = False
    scores: list[float] = []
    evaluations: int = 0


@dataclass
class RewardWatch:
    """Watches rewards, replies and held-out scores.

    Attributes:
        section: the recipe's section of reinforcement.
        state: state after the rounds so far.
    """

    section: ReinforceSection
    state: RewardState = field(default_factory=RewardState)

    def rewarded(self, event: RewardsGiven) -> list[GuardFinding]:
        """Record a round; return what it shows."""
        state = self.state
        before = state.recent[-1].reward if state.recent else event.reward
        state.differed = state.differed or event.spread > 0 or event.reward != before
        state.rounds += 1
        if len(state.first) < RECENT:
            state.first = [*state.first, event]
        state.recent = [*state.recent, event][-RECENT:]
        found = [self._constant(), self._equal(), self._far(event)]
        if state.rounds >= 2 * RECENT:
            found += [self._length(), self._entropy()]
        return [finding for finding in found if finding is not None]

    def scored(self, share: float) -> list[GuardFinding]:
        """Record a held-out score, 0 to 1, with the rewards since; return what it shows."""
        state = self.state
        state.scores = [*state.scores, share]
        if len(state.scores) <= FLAT_SCORES or state.rounds < 2 * RECENT:
            return []
        spread = _mean(one.spread for one in state.first)
        before, now = _mean(one.reward for one in state.first), _mean(one.reward for one in state.recent)
        flat = max(state.scores[-FLAT_SCORES:]) <= state.scores[0]
        if not flat or now - before <= RISE * spread:
            return []
        best = max((one.best for one in state.recent if one.best), key=lambda one: one.reward, default=None)
        return [findings.reward_tricked((before, now), (state.scores[0], share), best)]

    def evaluated(self, kl_to_base: float | None) -> list[GuardFinding]:
        """Record the divergence from the base on held-out rows, nats a token; return what it shows."""
        self.state.evaluations += 1
        if kl_to_base is None or kl_to_base <= self.section.kl_bound:
            return []
        return [findings.kl_leaves(kl_to_base, self.section.kl_bound)]

    def seen(self) -> Iterable[Check]:
        """List the checks for which there were enough rounds and scores."""
        state = self.state
        least: dict[Check, bool] = {
            "reward_constant": state.rounds >= CONSTANT,
            "groups_equal": state.rounds >= RECENT,
            "reward_tricked": len(state.scores) > FLAT_SCORES and state.rounds >= 2 * RECENT,
            "length_runs": state.rounds >= 2 * RECENT,
            "entropy_collapses": state.rounds >= 2 * RECENT,
            "kl_explodes": state.evaluations > 1 or (state.rounds > 0 and self.section.kl_weight > 0),
        }
        return [check for check, enough in least.items() if enough]

    def _constant(self) -> GuardFinding | None:
        state = self.state
        if state.differed or state.rounds < CONSTANT:
            return None
        return findings.reward_constant(state.recent[-1].reward, state.rounds)

    def _equal(self) -> GuardFinding | None:
        recent = self.state.recent
        if len(recent) < RECENT or any(one.dropped_groups < one.groups for one in recent):
            return None
        return findings.groups_equal(len(recent), _mean(one.reward for one in recent))

    def _far(self, event: RewardsGiven) -> GuardFinding | None:
        bound = self.section.kl_bound
        return findings.kl_leaves(event.kl, bound) if event.kl is not None and event.kl > bound else None

    def _length(self) -> GuardFinding | None:
        first, recent = self.state.first, self.state.recent
        before, now = _mean(one.reply_tokens for one in first), _mean(one.reply_tokens for one in recent)
        cut = [_mean(one.cut_replies / one.replies for one in rounds) for rounds in (first, recent)]
        if now < LONGER * before or cut[1] - cut[0] < CUT:
            return None
        return findings.length_runs(before, now, cut[1])

    def _entropy(self) -> GuardFinding | None:
        first, recent = (
            [one.entropy for one in rounds if one.entropy is not None]
            for rounds in (self.state.first, self.state.recent)
        )
        if not first or not recent:
            return None
        before, now = _mean(first), _mean(recent)
        if now > COLLAPSED * before or now > CERTAIN:
            return None
        return findings.entropy_collapses(before, now)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
