"""The memory plan of the fast engine: `advise` chooses it, `train` carries it out."""

from __future__ import annotations

from itertools import cycle, groupby, islice
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

SaveLevel = Literal["all", "rotated", "products", "offloaded", "narrow", "attention", "host", "input"]
"""Name of the activations that a layer keeps between forward and backward, from fastest to smallest on the device; see
`models.decoder.layer_tensors`, which says it tensor by tensor:

- all: everything, norm outputs and activations too. Has to be pinned by hand.
- rotated: outputs of matrix products and of attention, and rotated queries and keys.
- products: outputs of matrix products and of attention.
- offloaded: the same, the widest of them in host memory: free as long as the link keeps up.
- narrow: the same without the widest, those of the gate and up projections.
- attention: the layer's input and attention's output; the layer is computed again, but not attention.
- host: the same in host memory: on the device a layer leaves only a few numbers a token.
- input: the layer's input alone, in host memory. A third to a half for the link to carry."""

LEVEL_NAMES: tuple[SaveLevel, ...] = get_args(SaveLevel)
AUTO = "auto"
_MOST_DIGITS = 4  # digits of a number of layers


class MemoryPlan(BaseModel):
    """A memory plan: the save level of every layer, and what is computed in chunks or stays in host memory.

    Two plans with equal `mlp_rows` and `head_rows` compute the same bits, whatever their save levels.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: tuple[SaveLevel, ...] = Field(min_length=1, description="Save level of each layer, from the first.")
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
        """The save levels in the form of the recipe's `memory.layers`."""
        return ",".join(f"{level}:{len(list(group))}" for level, group in groupby(self.layers))


def parse_save_levels(text: str, count: int | None = None) -> tuple[SaveLevel, ...]:
    """Parse save levels from text such as "narrow:27,products", or "offloaded+narrow:28,products" (by turns).

    Args:
        text: comma-separated parts from the first layer on: a save level, or several joined by "+" to take by turns,
            with `:LAYERS` (otherwise one layer for each level named).
        count: number of layers; the last level is repeated up to it, and further levels are cut. None: as many as
            named.

    Raises:
        ValueError: The text names an unknown level, or an invalid count.
    """
    known: dict[str, SaveLevel] = {level: level for level in LEVEL_NAMES}
    found: list[SaveLevel] = []
    for part in text.split(","):
        turns, _, layers = part.strip().partition(":")
        names = [name.strip() for name in turns.split("+")]
        counted = not layers or (layers.isdecimal() and len(layers) <= _MOST_DIGITS and int(layers) > 0)
        if not (known.keys() >= set(names) and counted):
            raise ValueError(
                f"{part.strip()!r} is not one of {', '.join(LEVEL_NAMES)}, each with a count such as narrow:8"
            )
        found += islice(cycle([known[name] for name in names]), int(layers or len(names)))
    if count is not None:
        found = (found + [found[-1]] * count)[:count]
    return tuple(found)
