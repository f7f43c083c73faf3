"""Rounds of replies that the model writes to learn from: prompts and draws follow from the seed and the round alone.

So a run that is resumed writes the replies of an unfinished round again, and they are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.best_fit import best_fit_decreasing
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import JudgedGroup, JudgedReply, RewardsGiven
from burnish_engine.data.tokens.pack import MicroBatch, ReplyTerms, micro_batch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.generation.generate import reply_groups
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.base.engine import Engine, EvaluationRequest
from burnish_engine.train.base.policy import ReplyFigures, advantages, token_shares
from burnish_engine.train.reinforce.prompts import Prompt, find_prompts, own_replies
from burnish_engine.train.reinforce.reward_sum import RewardSum, Scores

_TRIED = 10  # rows
_SHOWN = 300  # characters of a prompt or reply in an event
_SHOWN_OF_GROUP = 3  # replies of a group in an event
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Round:
    """The replies of a round, judged and ready to be learned from.

    Attributes:
        batches: micro-batches of the first optimizer step on them.
        again: those of each further step, which compare with the probabilities as the replies were written.
        given: event of the round, without what its steps find.
    """

    batches: Sequence[MicroBatch]
    again: Sequence[MicroBatch]
    given: RewardsGiven

    def of_update(self, number: int) -> Sequence[MicroBatch]:
        """Return the micro-batches of an optimizer step on the round, from 0."""
        return self.again if number else self.batches

    def event(self, step: int, figures: Sequence[ReplyFigures]) -> RewardsGiven:
        """Return the round's event.

        Args:
            step: optimizer steps made.
            figures: figures of each step on the round; of those without anything to learn, none.
        """
        update: dict[str, Any] = {"step": step}
        if figures:
            update |= {"entropy": figures[0].entropy, "kl": figures[0].kl, "clipped": figures[-1].clipped}
        return self.given.model_copy(update=update)


@dataclass(frozen=True)
class Rollouts:
    """Writes and judges the replies of each round.

    Attributes:
        recipe: recipe of the run.
        documents: training rows.
        prompts: rows that replies are written to.
        tokenizer: tokenizer of the model.
        rewards: rewards of the run.
        start: adapter that the run continues from; None: it began with a new one.
    """

    recipe: Recipe
    documents: Sequence[Document]
    prompts: Sequence[Prompt]
    tokenizer: Any
    rewards: RewardSum
    start: Path | None = None

    def write(
        self,
        engine: Engine,
        number: int,
        *,
        ends: Callable[[], object] = lambda: None,
        progress: Callable[[int, int], object] = lambda *_: None,
    ) -> Round | None:
        """Write and judge the replies of a round.

        Args:
            engine: loaded engine; all its steps must be made.
            number: number of the round, from 0.
            ends: function called between groups of replies that says whether the run shall end.
            progress: function that receives the number of replies written and of all.

        Returns:
            The round; None where the run shall end.

        Raises:
            UsageError: A reward function of the person's own fails.
        """
        began = time.perf_counter()
        chosen = self.chosen(number)
        replies = self._written(engine, chosen, number, ends, progress)
        if replies is None:
            return None
        written = time.perf_counter()
        tried = self.tried(chosen, replies)
        scores = self.rewards.scores(tried)
        judged = time.perf_counter()
        section = self.recipe.reinforce
        total_GN = scores.total_N.reshape(len(chosen), section.replies)
        advantage_GN = advantages(section, total_GN)
        kept = np.flatnonzero((advantage_GN != 0).any(axis=1))
        given = self._event(tried, scores, dropped=len(chosen) - len(kept))
        given = given.model_copy(update={"written_s": written - began, "judged_s": judged - written})
        places = [group * section.replies + one for group in kept.tolist() for one in range(section.replies)]
        prompts = [chosen[place // section.replies] for place in places]
        documents = [self._document(prompt, replies[place]) for prompt, place in zip(prompts, places, strict=True)]
        if not documents:
            nothing = self._nothing(chosen[0])
            return Round(nothing, nothing, given)
        flat = advantage_GN.reshape(-1)[places].astype(np.float32)
        return Round(*self._batches(engine, documents, flat), given)

    def own_worth(self) -> str:
        """Judge the rows' own replies of some rows, as a trial of the rewards; say in a sentence if they are worthless.

        Raises:
            UsageError: A reward function of the person's own fails.
        """
        rows = self.first(_TRIED)
        parts = self.rewards.scores(self.tried(rows, self.own(rows))).parts
        lacking = [name for name, values in parts.items() if not values.any()]
        if not lacking:
            return ""
        named = " and ".join(lacking)
        tried = f"tried on {len(rows)} rows"
        return f"The rows' own replies get no reward by {named} ({tried}): it may ask for something else."

    def chosen(self, number: int) -> list[Prompt]:
        """Choose the prompts of a round: all rows in an order of their own in each epoch."""
        groups, count = self.recipe.reinforce.groups, len(self.prompts)
        found = []
        for place in range(number * groups, (number + 1) * groups):
            epoch, at = divmod(place, count)
            found.append(self.prompts[_order(self.recipe.train.seed, epoch, count)[at]])
        return found

    def first(self, count: int) -> list[Prompt]:
        """Return the first prompts of a run."""
        order = _order(self.recipe.train.seed, 0, len(self.prompts))
        return [self.prompts[place] for place in order[:count]]

    def own(self, chosen: Sequence[Prompt]) -> list[GeneratedReply]:
        """Return the rows' own replies."""
        lengths = [len(self.documents[prompt.row]) - prompt.tokens for prompt in chosen]
        return [GeneratedReply(one.wanted, True, length) for one, length in zip(chosen, lengths, strict=True)]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the token ids before a row's last reply."""
        ids: list[int] = self.documents[prompt.row].input_ids[: prompt.tokens].tolist()
        return ids

    def draws(self, number: int, groups: int, replies: int) -> list[Sampling]:
        """Return how each reply of a round is drawn, group by group; each has a seed of its own."""
        section, seed = self.recipe.reinforce, self.recipe.train.seed
        seeds = [
            int(np.random.SeedSequence([seed, number, group, one]).generate_state(1)[0])
            for group in range(groups)
            for one in range(replies)
        ]
        return [Sampling(section.max_tokens, section.temperature, seed=one) for one in seeds]

    def tried(self, chosen: Sequence[Prompt], replies: Sequence[GeneratedReply]) -> list[TriedReply]:
        """Pair replies with their prompts, as many replies to each."""
        each = len(replies) // len(chosen)
        texts = [self.tokenizer.decode(self.prompt_ids(prompt), skip_special_tokens=True) for prompt in chosen]
        return [
            TriedReply(texts[place // each], one.text, chosen[place // each].wanted, one.stopped, one.tokens)
            for place, one in enumerate(replies)
        ]

    def _written(
        self,
        engine: Engine,
        chosen: Sequence[Prompt],
        number: int,
        ends: Callable[[], object],
        progress: Callable[[int, int], object],
    ) -> list[GeneratedReply] | None:
        section = self.recipe.reinforce
        prompts = [ids for prompt in chosen for ids in [self.prompt_ids(prompt)] * section.replies]
        samplings, found = self.draws(number, section.groups, section.replies), dict[int, GeneratedReply]()
        budget, paged = self.recipe.train.micro_batch_tokens, engine.replies_are_paged
        for group in reply_groups([len(ids) for ids in prompts], section.max_tokens, budget, paged=paged):
            if ends():
                return None
            made = engine.replies(
                [prompts[place] for place in group], section.max_tokens, [samplings[place] for place in group]
            )
            found.update(zip(group, made, strict=True))
            progress(len(found), len(prompts))
        return [found[place] for place in range(len(prompts))]

    def _document(self, prompt: Prompt, reply: GeneratedReply) -> Document:
        end = [] if reply.end is None else [reply.end]
        ids = np.array([*self.prompt_ids(prompt), *reply.ids, *end], dtype=np.int32)
        row = self.documents[prompt.row]
        return Document(ids, np.arange(len(ids)) >= prompt.tokens, row.row, row.file)

    def _nothing(self, prompt: Prompt) -> list[MicroBatch]:
        """Return the pass of a step that learns nothing."""
        ids = np.array(self.prompt_ids(prompt), dtype=np.int32)
        return [micro_batch([Document(ids, np.zeros(len(ids), dtype=bool), 1, "")], [0])]

    def _batches(
        self, engine: Engine, documents: Sequence[Document], advantage_N: Floats
    ) -> tuple[list[MicroBatch], list[MicroBatch]]:
        """Pack replies into micro-batches: of the first step on them, and of each further one."""
        section, train = self.recipe.reinforce, self.recipe.train
        share_N = token_shares(section, np.array([one.supervised_tokens for one in documents]))
        request = EvaluationRequest(documents, train.micro_batch_tokens)
        reference = engine.token_log_probs(request, self.start or False) if section.kl_weight else None
        old = engine.token_log_probs(request) if section.updates > 1 else None
        lengths, rows = [len(one) for one in documents], range(len(documents))
        groups: list[tuple[int, ...]] = [(row,) for row in rows]
        if train.pack:
            groups = best_fit_decreasing(rows, lengths, train.micro_batch_tokens)

        def packed(known: Sequence[Floats] | None) -> list[MicroBatch]:
            found = []
            for group in groups:
                places = list(group)
                terms = ReplyTerms(
                    advantage_N[places], share_N[places], _joined(known, places), _joined(reference, places)
                )
                found.append(replace(micro_batch(documents, group), replies=terms))
            return found

        return packed(None), packed(old)

    def _event(self, tried: Sequence[TriedReply], scores: Scores, *, dropped: int) -> RewardsGiven:
        best, worst = int(scores.total_N.argmax()), int(scores.total_N.argmin())
        judged = [
            JudgedReply(prompt=one.prompt[-_SHOWN:], reply=one.text[:_SHOWN], reward=float(reward))
            for one, reward in zip(tried, scores.total_N, strict=True)
        ]
        each = self.recipe.reinforce.replies
        means = scores.total_N.reshape(-1, each).mean(axis=1)
        return RewardsGiven(
            step=0,
            reward=float(scores.total_N.mean()),
            spread=float(scores.total_N.std()),
            parts={name: float(values.mean()) for name, values in scores.parts.items()},
            replies=len(tried),
            groups=len(tried) // self.recipe.reinforce.replies,
            dropped_groups=dropped,
            reply_tokens=sum(one.tokens for one in tried) / len(tried),
            cut_replies=sum(not one.ended for one in tried),
            written_s=0.0,
            judged_s=0.0,
            best=judged[best],
            worst=judged[worst],
            best_group=_group(judged, int(means.argmax()), each),
            worst_group=_group(judged, int(means.argmin()), each),
        )


def prepare_rollouts(
    recipe: Recipe, documents: Sequence[Document], tokenizer: Any, start: Path | None = None
) -> tuple[Rollouts, str]:
    """Find the rows that replies are written to.

    Args:
        recipe: recipe of the run.
        documents: training rows.
        tokenizer: tokenizer of the model.
        start: adapter that the run continues from; None: it begins with a new one.

    Returns:
        The writer, and a sentence on rows that are not used; empty where all are.

    Raises:
        DataError: No row can be used.
        UsageError: There is no file of a reward function.
    """
    wanted = own_replies(documents, tokenizer)
    rewards = RewardSum(recipe, wanted)
    prompts = find_prompts(recipe, documents, wanted, rewards)
    left_out = f"No replies are written to some rows ({prompts.left_out_text})." if prompts.left_out else ""
    return Rollouts(recipe, documents, prompts.rows, tokenizer, rewards, start), left_out


def _group(judged: Sequence[JudgedReply], number: int, each: int) -> JudgedGroup:
    """Return a group's best replies and its worst one; of equal replies, the first."""
    ranked = sorted(judged[number * each : (number + 1) * each], key=lambda one: -one.reward)
    shown = [*ranked[: min(_SHOWN_OF_GROUP, each) - 1], ranked[-1]]
    return JudgedGroup(
        prompt=ranked[0].prompt,
        reward=sum(one.reward for one in ranked) / each,
        replies=[one.model_copy(update={"prompt": ""}) for one in shown],
    )


def _joined(known: Sequence[Floats] | None, places: Sequence[int]) -> Floats | None:
    return None if known is None else np.concatenate([known[place] for place in places])


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    """Order the prompts of an epoch; RandomState's stream is frozen by NumPy's policy (NEP 19)."""
    order: list[int] = np.random.RandomState([seed, epoch]).permutation(count).tolist()
    return order
