"""The tasks of the demo: a sample dataset, the recipe that teaches it, and the behavior that tells whether it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.paths import assets_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.demo.behaviors import is_one_sentence, shows_behavior

MOST_TOKENS = 60_000
"""Most tokens that a demo trains on."""


@dataclass(frozen=True)
class DemoTask:
    """A behavior that the demo teaches, with the data and the recipe for it.

    Attributes:
        dataset: name of the sample dataset.
        title: what the model is taught, for a heading: "tuned to ...".
        behavior: the behavior that is counted, in words.
        shows: function of a reply and whether the model ended it by itself; it tells whether the reply shows it.
        reply_tokens: most tokens of a reply.
        settings: recipe without its data files, TOML.
    """

    dataset: str
    title: str
    behavior: str
    shows: Callable[..., bool]
    reply_tokens: int
    settings: str

    def recipe(self, tokens: int = MOST_TOKENS) -> Recipe:
        """Make the recipe: the embedded model and the sample dataset.

        Args:
            tokens: most tokens to train on.
        """
        recipe = parse_recipe(self.settings)
        files = {
            "files": [str(assets_dir() / "samples" / f"{self.dataset}.train.jsonl")],
            "validation_files": [str(assets_dir() / "samples" / f"{self.dataset}.heldout.jsonl")],
        }
        sections = {
            "data": recipe.data.model_copy(update=files),
            "train": recipe.train.model_copy(update={"max_tokens": tokens}),
        }
        return recipe.model_copy(update=sections)

    def prompts(self) -> list[str]:
        """Read the held-out prompts."""
        (file,) = self.recipe().data.validation_files
        rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
        return [row["prompt"] if "prompt" in row else row["messages"][0]["content"] for row in rows]

    def count(self, replies: list[dict[str, object]]) -> int:
        """Count the replies (objects with `reply` and `stopped`) that show the behavior."""
        return sum(self.shows(str(entry["reply"]), stopped=bool(entry["stopped"])) for entry in replies)


# Found with a grid over rank, learning rate and pass size on 2026-11-21; held-out loss 34 % below the base.
BENCH_NOTES = DemoTask(
    dataset="bench-notes",
    title="write bench notes",
    behavior="The taught behavior: whatever the problem, the reply is a bench note of exactly three lines, Cause, Fix "
    "and Check. It counts when each line has its label and at least three words, and the model ended the reply by "
    "itself.",
    shows=shows_behavior,
    reply_tokens=110,  # the longest taught reply has about 95
    settings="""
name = "bench-notes demo"
[data]
max_length = 256
[adapter]
rank = 16
alpha = 32
[train]
epochs = 4.0
micro_batch_tokens = 1024
learning_rate = 2e-3
checkpoint_every = 20
[export]
quants = ["Q8_0", "IQ4_NL"]
""",
)
# Without rpo_alpha the rejected replies become so unlikely within three epochs that the model repeats the question.
ONE_SENTENCE = DemoTask(
    dataset="one-sentence",
    title="answer in one sentence",
    behavior="The taught behavior: whatever the question, the reply is one sentence. It counts when it has 4 to 40 "
    "words and one line, ends with a period, and the model ended it by itself.",
    shows=is_one_sentence,
    reply_tokens=100,
    settings="""
name = "one-sentence demo"
[data]
max_length = 256
[adapter]
rank = 16
alpha = 32
[preference]
objective = "dpo"
rpo_alpha = 1.0
[train]
epochs = 2.0
micro_batch_tokens = 1024
learning_rate = 3e-4
checkpoint_every = 20
[export]
quants = ["Q8_0", "IQ4_NL"]
""",
)
