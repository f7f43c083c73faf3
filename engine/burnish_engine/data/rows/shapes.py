"""Names the shapes of datasets, and the columns that each needs."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.formats import CONVERSATION_COLUMNS

SHAPES = {
    "messages": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{role, content}}",
    "sharegpt": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{from, value}}",
    "preference": "columns chosen and rejected, and optionally prompt, instruction or a conversation",
    "kto": "a column label (true or false) beside a conversation, or beside prompt and completion",
    "alpaca": "columns instruction and output or response, and optionally input",
    "prompt_completion": "columns prompt or question, and completion, response or answer",
    "segments": "a column segments with lists of {text, label}",
    "text": "a column text",
}
"""Shape of a dataset to a description of the columns that it needs."""

MEANINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "messages": (("conversation",),),
    "sharegpt": (("conversation",),),
    "preference": (("chosen", "rejected"), ("conversation", "rejected")),
    "kto": (("conversation", "label"), ("prompt", "completion", "label"), ("instruction", "output", "label")),
    "alpaca": (("instruction", "output"),),
    "prompt_completion": (("prompt", "completion"),),
    "segments": (("segments",),),
    "text": (("text",),),
}
"""Shape to its sets of required meanings; in one of the sets, every meaning must have a column."""
OPTIONAL_MEANINGS = (
    *("conversation", "instruction", "input", "context", "history", "prompt", "system", "tools", "reasoning"),
)
"""Further meanings that a column may have."""
TEXT_SHAPES = ("text", "segments")
"""Shapes whose rows are plain text, which is not rendered with a chat template."""
PREFERENCE_SHAPES = ("preference", "kto")
"""Shapes of which the recipe has to say what is learned."""
SAME_REPLIES = "a rejected reply that is the chosen one"
NO_REJECTED = "rejected without content"
EMPTY_REJECTED = "an empty rejected reply"
PAIR_TOO_LONG = "a pair of which a reply ends behind"
"""Begins the reason for leaving out a pair that is longer than `data.max_length`."""
BAD_REPLY = "labeled as a bad reply, and only good ones are learned"


def preferences_among(shapes: str) -> list[str]:
    """List the shapes of preferences among those of a dataset.

    Args:
        shapes: `DatasetFacts.shape`.
    """
    return [shape for shape in PREFERENCE_SHAPES if shape in shapes.split(", ")]


def undecided_preferences(name: str, shape: str) -> DataError:
    """Make the error for preferences whose recipe does not say what to learn of them.

    Args:
        name: name of the file, or another subject.
        shape: shape of the rows, one of `PREFERENCE_SHAPES`.
    """
    objective = "dpo" if shape == "preference" else "kto"
    replies = "chosen replies" if shape == "preference" else "replies labeled good"
    return DataError(
        f"{name} holds preferences (shape {shape}), and the recipe does not say what to learn.",
        f'To learn the {replies} as they stand, set data.shape = "{shape}"; to learn what is preferred, '
        f'preference.objective = "{objective}".',
    )


@dataclass(frozen=True)
class ColumnLayout:
    """The meaning of a file's columns.

    Attributes:
        shape: key of `SHAPES`.
        columns: meaning (of `MEANINGS` or `OPTIONAL_MEANINGS`) to column name.
        from_recipe: whether the recipe names the columns.
    """

    shape: str
    columns: dict[str, str]
    from_recipe: bool = False

    @property
    def is_text(self) -> bool:
        """Whether rows are plain text."""
        return self.shape in TEXT_SHAPES
