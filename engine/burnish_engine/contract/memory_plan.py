"""How a pass of the fast engine uses memory, layer by layer: `advise` chooses it, `train` carries it out."""

from __future__ import annotations

from itertools import cycle, groupby, islice
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["all", "rotated", "products", "offloaded", "narrow", "attention", "host", "input"]
"""What a layer keeps between forward and backward, from fastest to smallest on the device; see
`models.keep.KEEP_LEVELS`, which holds the same names."""

LEVELS: tuple[Level, ...] = get_args(Level)
AUTO = "auto"
_MOST_DIGITS = 4  # of a number of layers


class MemoryPlan(BaseModel):
    """A decision for every layer and for what is done in pieces.

    Two plans with equal `mlp_rows` and `head_rows` compute the same bits, whatever their layers keep.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: tuple[Level, ...] = Field(min_length=1, description="Level of each layer, from the first.")
    mlp_rows: int = Field(default=0, ge=0, description="Tokens that pass the feed-forward at once. 0: all of a pass.")
    head_rows: int = Field(ge=1, description="Learned tokens whose logits exist at once.")
    embedding_on_host: bool = Field(
        default=False, description="The table of embeddings stays in host memory; tied ones only with the head."
    )
    head_on_host: bool = Field(
        default=False, description="The head's matrix stays in host memory and passes the device in pieces."
    )

    @property
    def text(self) -> str:
        """The layers as the recipe's `memory.layers` has them."""
        return ",".join(f"{level}:{len(list(group))}" for level, group in groupby(self.layers))


def parse_levels(text: str, count: int | None = None) -> tuple[Level, ...]:
    """Levels by layer from text such as "narrow:27,products", or "offloaded+narrow:28,products" (by turns).

    Args:
        text: Parts from the first layer on: a level, or several to be taken by turns, with `:LAYERS` (otherwise one
            layer for each level named).
        count: Number of layers: the last level is repeated up to it, and what is beyond it is cut.

    Raises:
        ValueError: It names an unknown level, or a count that is none.
    """
    known: dict[str, Level] = {level: level for level in LEVELS}
    found: list[Level] = []
    for part in text.split(","):
        turns, _, layers = part.strip().partition(":")
        names = [name.strip() for name in turns.split("+")]
        counted = not layers or (layers.isdecimal() and len(layers) <= _MOST_DIGITS and int(layers) > 0)
        if not (known.keys() >= set(names) and counted):
            raise ValueError(f"{part.strip()!r} is not one of {', '.join(LEVELS)}, each with a count such as narrow:8")
        found += islice(cycle([known[name] for name in names]), int(layers or len(names)))
    if count is not None:
        found = (found + [found[-1]] * count)[:count]
    return tuple(found)
