"""The guard's findings about rewards, and a text for each."""

from __future__ import annotations

from burnish_engine.contract.run.events import JudgedReply
from burnish_engine.train.guard.findings import GuardFinding

_SHOWN = 120  # characters of a reply


def reward_constant(reward: float, rounds: int) -> GuardFinding:
    """Report that the reward never differs."""
    return GuardFinding(
        "reward_constant",
        f"Every reply of the first {rounds} rounds got the same reward ({reward:.4g}), so nothing is learned.",
        "The rewards do not tell replies apart: no reply is right yet, or every one is, or they judge something else.",
        "Try them on ten rows: burnish rewards try RECIPE. Use graded rewards (keys, distance, python), easier rows, "
        "or more replies.",
    )


def groups_equal(rounds: int, reward: float) -> GuardFinding:
    """Report that all replies to a prompt are rewarded alike."""
    return GuardFinding(
        "groups_equal",
        f"In the last {rounds} rounds no prompt had replies of different reward (mean {reward:.4g}): they teach "
        "nothing.",
        "The prompts are too hard or too easy, or the replies are all the same.",
        "Use graded rewards, other rows, more replies (reinforce.replies) or a higher temperature; a run that is done "
        "can be stopped.",
        stops=False,
    )


def reward_tricked(reward: tuple[float, float], score: tuple[float, float], best: JudgedReply | None) -> GuardFinding:
    """Report that the reward rises while the held-out score does not."""
    shown = f' Such a reply: "{best.reply[:_SHOWN]}" ({best.reward:.3g}).' if best else ""
    return GuardFinding(
        "reward_tricked",
        f"The mean reward rose from {reward[0]:.3g} to {reward[1]:.3g} while the held-out score went from "
        f"{score[0]:.0%} to {score[1]:.0%}.{shown}".replace("%", " %"),
        "The model earns rewards without doing the task (reward hacking): they pay for something easier.",
        "Read the best replies, and correct or reweigh the rewards.",
        stops=False,
    )


def length_runs(before: float, now: float, cut: float) -> GuardFinding:
    """Report that replies become long until they are cut."""
    return GuardFinding(
        "length_runs",
        f"Replies grew from {before:.0f} to {now:.0f} tokens, and {cut:.0%} are cut.".replace("%", " %"),
        "Long replies are rewarded, or ending one is not.",
        'Add a reward of kind "length", average = "tokens", or raise reinforce.max_tokens.',
        stops=False,
    )


def entropy_collapses(before: float, now: float) -> GuardFinding:
    """Report that the model writes the same replies again and again."""
    return GuardFinding(
        "entropy_collapses",
        f"The entropy of a token fell from {before:.3g} to {now:.2g} nats: the model hardly tries other replies.",
        "The learning rate is too high, or few replies were rewarded again and again.",
        "Lower train.learning_rate, raise reinforce.clip_high or reinforce.kl_weight.",
        stops=False,
    )


def kl_leaves(kl: float, bound: float) -> GuardFinding:
    """Report that the model leaves the reach of the model that training began with."""
    return GuardFinding(
        "kl_explodes",
        f"The model is {kl:.3g} nats a token from the model as training began, above reinforce.kl_bound = {bound:g}.",
        "The rewards pull it far from what it was, or the learning rate is too high.",
        "Lower train.learning_rate, or set reinforce.kl_weight, such as 0.04.",
        stops=False,
    )
