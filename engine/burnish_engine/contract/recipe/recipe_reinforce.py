"""The schemas of the recipe's section `reinforce` and of its tables `reward`."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from burnish_engine.contract.recipe.checks.patterns import check_pattern
from burnish_engine.contract.recipe.recipe_section import Section, setting, unless, when
from burnish_engine.contract.recipe.recipe_task import TaskMetric

RewardKind = Literal["task", "keys", "distance", "format", "tags", "length", "script", "judge", "code", "python"]
MOST_REWARDS = 16
"""Most reward tables of a recipe."""

_IS_REINFORCED = when("preference.objective", "grpo")


class ReinforceSection(Section):
    """Reinforcement: the model writes groups of replies, rewards judge them, and the better ones become likelier."""

    groups: int = setting(
        8, "Prompts that replies are written to before they are learned from.", label="Prompts at a time",
        unit="prompts", used_if=_IS_REINFORCED, ge=1, le=4096,
    )  # fmt: skip
    replies: int = setting(
        8,
        "Replies to each prompt. Each is compared with the others to the same prompt. A group whose replies have all "
        "the same reward teaches nothing: it is left out and counted.",
        label="Replies to each prompt", unit="replies", used_if=_IS_REINFORCED, ge=2, le=32,
    )  # fmt: skip
    max_tokens: int = setting(
        128,
        "Longest reply; one that does not end within it is cut. With its prompt it has to fit into "
        "train.micro_batch_tokens.",
        label="Longest reply to learn from", unit="tokens", used_if=_IS_REINFORCED, ge=1, le=2**20,
    )  # fmt: skip
    temperature: float = setting(
        1.0,
        "Temperature that replies are drawn at. At 1 they are drawn from the very probabilities that are learned; "
        "lower values try out less.",
        label="Temperature of replies to learn from", used_if=_IS_REINFORCED, gt=0.0, le=10.0,
    )  # fmt: skip
    updates: int = setting(
        1,
        "Optimizer steps on the same replies. More than 1 saves writing, and compares with the probabilities that the "
        "replies were written with; `clip_low` and `clip_high` then limit how far a step goes.",
        label="Steps on the same replies", unit="steps", used_if=_IS_REINFORCED, ge=1, le=16,
    )  # fmt: skip
    spread: Literal["none", "group"] = setting(
        "none",
        "What a reply's advantage, its reward less the mean of its group, is divided by. none: nothing (Dr. GRPO, Liu "
        "et al. 2025). group: the standard deviation of the group's rewards (GRPO).",
        label="Advantages are divided by",
        choices={"none": "nothing (Dr. GRPO)", "group": "the group's spread (GRPO)"},
        used_if=_IS_REINFORCED,
    )
    average: Literal["tokens", "replies", "constant"] = setting(
        "tokens",
        "What the loss is averaged over. tokens: all tokens of the step alike (DAPO, Yu et al. 2025). replies: each "
        "reply's mean over its tokens (GRPO). constant: the sum of each reply over max_tokens (Dr. GRPO).",
        label="The loss is averaged over",
        choices={"tokens": "tokens (DAPO)", "replies": "replies (GRPO)", "constant": "a constant (Dr. GRPO)"},
        used_if=_IS_REINFORCED,
    )
    ratio: Literal["token", "sequence"] = setting(
        "token",
        "What is compared with the probabilities that replies were written with. token: each token (GRPO). sequence: "
        "the geometric mean over a reply (GSPO, Zheng et al. 2025), which takes clips of about 0.0003.",
        label="Probabilities are compared by",
        choices={"token": "token (GRPO)", "sequence": "reply (GSPO)"},
        used_if=_IS_REINFORCED,
    )
    clip_low: float = setting(
        0.2, "How far below 1 the ratio of probabilities may fall while a bad reply is still made less likely.",
        label="Lower clip", used_if=(_IS_REINFORCED, unless("updates", 1)), gt=0.0, lt=1.0,
    )  # fmt: skip
    clip_high: float = setting(
        0.28, "How far above 1 it may rise while a good reply is still made likelier (clip-higher, DAPO).",
        label="Upper clip", used_if=(_IS_REINFORCED, unless("updates", 1)), gt=0.0, le=10.0,
    )  # fmt: skip
    kl_weight: float = setting(
        0.0,
        "Weight of the divergence from the model as it was, estimated at the replies' tokens. 0: none is computed. "
        "Needs an adapter.",
        label="Weight of the divergence (KL)", zero="off", used_if=_IS_REINFORCED, ge=0.0, le=100.0,
    )  # fmt: skip
    kl_bound: float = setting(
        2.0, "Divergence from the model as it was, nats a token, above which the run is called suspicious.",
        label="Divergence to warn at", unit="nats", used_if=_IS_REINFORCED, gt=0.0, le=1000.0,
    )  # fmt: skip

    @property
    def notes(self) -> list[str]:
        """Sentences on settings that do not go well together."""
        found = []
        if self.ratio == "sequence" and self.updates > 1 and self.clip_high > 0.05:
            found.append(
                f'reinforce.clip_high = {self.clip_high:g} hardly limits ratio = "sequence", whose ratios lie near 1: '
                "usual are clip_low = 0.0003 and clip_high = 0.0004."
            )
        if self.temperature != 1.0:
            found.append(
                f"reinforce.temperature = {self.temperature:g} draws from other probabilities than those that are "
                "learned, so the steps are not quite those of the rewards."
            )
        return found


class RewardSection(Section):
    """A reward: what it judges, and how much it counts. A reply's reward is the weighted sum of all."""

    kind: RewardKind = setting(
        "task",
        "task: 1 if right by [task]. keys: share of the keys of the row's own JSON whose value is right. distance: how "
        "near its last number is. format: 1 if `pattern` is found. tags: share of `tags` that are written right. "
        "length: at most `tokens`. script: same letters as the row's own reply. judge: what `model` says. code: 1 if "
        "its code is right. python: `function`.",
    )
    name: str = setting("", "Name of its curve. Empty: the kind.", max_length=40)
    weight: float = setting(
        1.0, "Factor on it in the sum; below 0 it is a penalty.", ge=-1000.0, le=1000.0, allow_inf_nan=False
    )
    span: float = setting(
        0.0,
        "distance: difference from which on the reward is 0; nearer numbers get more, the right one 1. 0: as much as "
        "the number itself, at least 1.",
        used_if=when("kind", "distance"), ge=0.0, le=1e12,
    )  # fmt: skip
    pattern: str = setting(
        "", "format: regular expression (Python's syntax) that the reply has to hold.", used_if=when("kind", "format"),
        max_length=2000,
    )  # fmt: skip
    tags: list[str] = setting(
        list, 'tags: names such as ["think", "answer"]: each has to be opened and closed once, in this order.',
        used_if=when("kind", "tags"), max_length=20,
    )  # fmt: skip
    tokens: int = setting(
        0, "length: longest reply that gets 1; from there it falls to 0 at twice as much.", unit="tokens",
        used_if=when("kind", "length"), ge=0, le=2**20,
    )  # fmt: skip
    model: str = setting(
        "",
        'judge: model that gives each reply a number from 0 to 10: a folder, a .gguf file, "embedded", a run, or the '
        "name of a fetched model. It replies greedily, on the GPU where that is free, else on the CPU.",
        used_if=when("kind", "judge"), max_length=1000,
    )  # fmt: skip
    question: str = setting(
        "How well does the reply answer what was asked?", "judge: what it is asked to judge.",
        used_if=when("kind", "judge"), min_length=1, max_length=4000,
    )  # fmt: skip
    check: Literal["tests", "output"] = setting(
        "tests",
        "code: when the Python code of a reply is right. tests: the row's own reply, appended to it, runs without an "
        "error. output: it prints the row's own reply.",
        used_if=when("kind", "code"),
    )
    seconds: float = setting(
        5.0, "code: processor time that it may take.", unit="seconds", used_if=when("kind", "code"), gt=0.0, le=600.0
    )
    isolation: Literal["full", "limits"] = setting(
        "full",
        "code: what it may reach. full: neither network nor files (Linux namespaces). limits: it has your rights, "
        "and limits of memory, time and processes alone.",
        used_if=when("kind", "code"),
    )
    file: str = setting(
        "",
        "python: file with the function; relative paths are taken from the recipe's folder. It is your own code: it "
        "runs in a process with limits of memory and time, which may wait 20 s without computing, and its SHA-256 "
        "stands on the run's card.",
        used_if=when("kind", "python"),
    )  # fmt: skip
    function: str = setting(
        "reward",
        "python: name of the function. It is called as reward(prompt, reply, wanted) with texts, and returns a number.",
        used_if=when("kind", "python"), max_length=200,
    )  # fmt: skip

    @property
    def title(self) -> str:
        """Name of its curve."""
        return self.name or self.kind

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, pattern: str) -> str:
        if pattern:
            check_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> RewardSection:
        missing = {
            "format": ("" if self.pattern else "pattern", r'pattern = "^[0-9]+$"'),
            "tags": ("" if self.tags else "tags", 'tags = ["think", "answer"]'),
            "length": ("" if self.tokens else "tokens", "tokens = 64"),
            "python": ("" if self.file else "file", 'file = "reward.py"'),
            "judge": ("" if self.model else "model", 'model = "judge.gguf"'),
        }.get(self.kind)
        if missing and missing[0]:
            raise ValueError(f'{missing[0]} is empty, and kind = "{self.kind}" needs it, such as {missing[1]}')
        if not self.weight:
            raise ValueError("weight is 0, with which it counts for nothing: set another, or remove the table")
        if self.kind == "python" and not self.function.isidentifier():
            raise ValueError(f'function = "{self.function}" is no name of a function')
        if any(not tag.replace("-", "_").isidentifier() for tag in self.tags):
            raise ValueError(f"tags must be names, such as think, not {self.tags}")
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"tags names one twice, and each may stand in a reply once: {self.tags}")
        return self


def usual_rewards(metric: TaskMetric) -> list[RewardSection]:
    """Return rewards for a task that is scored by a metric: beside the score, a graded one where there is one."""
    match metric:
        case "number":
            return [RewardSection(), RewardSection(kind="distance", weight=0.5)]
        case "json":
            return [RewardSection(weight=0.5), RewardSection(kind="keys")]
        case _:
            return [RewardSection()]
