"""Sentences that terminal and window both show: a table of message ids and English forms. Loads no pydantic.

The terminal puts the values in as they are. The window looks a form up in its language before. What the engine wrote as
text is recognized by `recognize`, so that it can be shown in another language too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Check = Literal[
    "not_finite",
    "coverage",
    "no_targets",
    "unwritten",
    "padding",
    "leak",
    "labels",
    "learning_rate",
    "zero_gradient",
    "detached",
    "unchanged",
    "base_changed",
    "zero_loss",
    "constant_loss",
    "same_output",
    "end_token",
    "swapped_labels",
    "flat_margin",
    "reward_constant",
    "groups_equal",
    "reward_tricked",
    "length_runs",
    "entropy_collapses",
    "kl_explodes",
    "chosen_falls",
    "overfitting",
]
"""A check of the training guard."""
Fit = Literal["fits", "barely", "misfit", "misfit_rank", "misfit_expert_rank"]

PHASES: Final[Mapping[str, str]] = {
    "loading": "Opening the model",
    "preparing": "Preparing the data",
    "weights": "Loading the model",
    "checking": "Checking that it will learn",
    "dry_run": "Trying the longest pass",
    "evaluating": "Reading held-out rows",
    "scoring": "Scoring replies to held-out rows",
    "sampling": "Asking the fixed prompts",
    "writing": "Writing replies to learn from",
    "training": "Training",
    "saving": "Saving",
    "paused": "Paused",
}
"""Each phase of a run, in the order in which a run begins."""
FIRST_STEP: Final = "Making the first step"
"""The phase "training" of a run that has not made a step yet."""
PROGRESS: Final[Mapping[str, str]] = {
    "rows": "{done:,} of {total:,} rows",
    "pairs": "{done:,} of {total:,} pairs",
    "replies": "{done:,} of {total:,} replies",
    "layers": "{done:,} of {total:,} layers",
    "checks": "check {number} of {total}",
}
CHECKS: Final[Mapping[str, str]] = {
    "not_finite": "Loss and gradient are finite",
    "coverage": "The adapter reaches what was planned",
    "no_targets": "Something is learned from every pass",
    "unwritten": "The chat template writes all that rows say",
    "padding": "Only real tokens count",
    "leak": "Documents of a pass do not see each other",
    "labels": "Every label is the next token",
    "learning_rate": "The learning rate is above 0",
    "zero_gradient": "There is a gradient",
    "detached": "Every adapted layer has a gradient",
    "unchanged": "Steps change what is trained",
    "base_changed": "Frozen weights stay as they are",
    "zero_loss": "The loss is above 0",
    "constant_loss": "The loss moves",
    "same_output": "The trained model says something else than its base",
    "end_token": "The end of a reply is learned",
    "swapped_labels": "Chosen replies have the higher reward more often than not",
    "flat_margin": "The margin between chosen and rejected replies grows",
    "reward_constant": "Rewards differ",
    "groups_equal": "Replies to the same prompt have different rewards",
    "reward_tricked": "The held-out score rises with the reward",
    "length_runs": "Replies do not become long until they are cut",
    "entropy_collapses": "The model still tries out different replies",
    "kl_explodes": "The model stays within reach of its reference",
    "chosen_falls": "Chosen replies stay about as likely as they were",
    "overfitting": "The held-out loss does not rise while the training loss falls",
}
"""Each check with the statement that holds where it finds nothing. Of two failed checks, the earlier is the cause."""
EXPORT_STAGES: Final[Mapping[str, str]] = {
    "start": "Starting",
    "write": "Writing the 16-bit file",
    "run": "Running the trained model",
    "weigh": "Weighing what the training rows use",
    "make": "Making {quant}",
    "check": "Checking {quant}",
    "score": "Scoring {quant}",
    "merge": "Merging",
    "compare": "Comparing the files with the trained model",
    "push": "Pushing {size} to {repository}",
    "done": "Done",
}
DOWNLOAD_STAGES: Final[Mapping[str, str]] = {
    "wait": "Waiting for another download of {name}",
    "ask": "Asking for {name}",
    "fetch": "Downloading {name}",
    "resume": "Waiting to continue with {name}",
    "check_part": "Checking what is there of {name}",
    "check": "Checking {name}",
    "retry": "Waiting: {problem}; trying again",
    "done": "Done",
}
TIME_PARTS: Final[Mapping[str, str]] = {
    "loading": "Loading the model: {time}",
    "replay": "Rows that the base writes, unless it did: {time}",
    "reference": "What preferences are compared with: {time}",
    "steps": "{count:,} steps: {time}",
    "replies": "Writing replies, {count:,} times: {time}",
    "checks": "Checks, {count} times: {time}",
    "evaluations": "Held-out rows, {count:,} times: {time}",
    "general_text": "General text, {count:,} times: {time}",
    "prompts": "Fixed prompts, {count:,} times, up to {tokens:,} tokens: {time}, {share:.1%} of the run",
    "task": "Score of the task, {count:,} times: {time}",
    "saves": "Saving, {count:,} times: {time}",
}
"""Each part of a plan's time, by its name."""
LOADING: Final = "Loading comes on top."
FITS: Final[Mapping[str, str]] = {
    "fits": "It fits.",
    "barely": "It fits, barely.",
    "misfit": "It does not fit.",
    "misfit_rank": "It does not fit; with rank {rank} it would.",
    "misfit_expert_rank": "It does not fit; with rank {rank} for each expert it would.",
}
OUTCOMES: Final[Mapping[str, str]] = {
    "memory": "Memory: predicted {predicted}",
    "memory_measured": "Memory: predicted {predicted}, measured {measured}",
    "exchange": "Exchange of gradients among {n} processes: {took}",
    "exchange_predicted": "Exchange of gradients among {n} processes: {took}, predicted {expected}",
    "rolled_back": "At step {step:,} the run went back to step {to_step:,} and continues at {factor:g} times the "
    "learning rate. {reason}",
    "rolled_back_to_start": "At step {step:,} the run went back to the beginning and continues at {factor:g} times the "
    "learning rate. {reason}",
    "best": "The result is that of step {step:,}, whose held-out loss was the lowest ({loss:.3f}).",
    "gain": "{quant} keeps {gain} of the gain at {size}.",
    "gain_whole": "{quant} keeps all of the gain at {size}.",
    "no_gain": "{quant} keeps nothing of the gain at {size}: it is no better than the base model.",
}
"""Sentences about what a run or an export came to."""


class Sentence(NamedTuple):
    """An English sentence whose values are named, before they are put in."""

    form: str
    values: Mapping[str, object] = {}

    def __str__(self) -> str:
        return self.form.format(**self.values)


def recognize(text: str, forms: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """Find the form that made a text.

    Args:
        text: English text, as the engine wrote it.
        forms: message ids and their forms.

    Returns:
        The id and the values as text; None where no form of the table made it.
    """
    for name, form in forms.items():
        match = re.fullmatch(re.sub(r"\\\{(\w+)[^}]*\}", r"(?P<\1>.+)", re.escape(form)), text)
        if match:
            return name, match.groupdict()
    return None
