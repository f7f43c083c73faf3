"""The memory plan of the fast engine: `advise` chooses it, `train` carries it out; and the recipe's section on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, groupby, islice
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, unless

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
- input: the layer's input alone, in host memory. A third to a half for the link to carry.

Where a norm follows the feed-forward, every level keeps that one's output too, the last two in host memory."""

LEVEL_NAMES: tuple[SaveLevel, ...] = get_args(SaveLevel)
WeightPlace = Literal["card", "ranks", "host"]
"""The place of a layer's frozen weights: the device; a part on the device of each process that shares the run; or host
memory (`models.host_memory.weight_ring`)."""
WEIGHT_PLACES: tuple[WeightPlace, ...] = get_args(WeightPlace)
AUTO = "auto"
_MOST_DIGITS = 4  # digits of a number of layers
_Name = TypeVar("_Name", bound=str)


class MemoryPlan(BaseModel):
    """A memory plan: the save level of every layer, and what is computed in chunks or stays in host memory.

    Two plans with equal `mlp_rows` and `head_rows` compute the same bits, whatever their save levels and wherever their
    weights are.
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

    weights: tuple[WeightPlace, ...] = Field(
        default=(), description="Where each layer keeps its frozen weights, from the first; none: all on the card."
    )

    @property
    def text(self) -> str:
        """The save levels in the form of the recipe's `memory.layers`."""
        return _joined(self.layers)

    @property
    def weights_text(self) -> str:
        """The places of the weights in the form of the recipe's `memory.weights`."""
        return _joined(self.weights) or "card"

    @property
    def layers_on_host(self) -> tuple[int, ...]:
        """The numbers of the layers whose frozen weights are in host memory, from the lowest."""
        return layers_at("host", self.weights)

    @property
    def layers_on_ranks(self) -> tuple[int, ...]:
        """The numbers of the layers whose frozen weights the processes of the run share, from the lowest."""
        return layers_at("ranks", self.weights)


def layers_at(place: WeightPlace, weights: Sequence[WeightPlace]) -> tuple[int, ...]:
    """Return the numbers of the layers whose weights are in a place, from the lowest."""
    return tuple(layer for layer, its_place in enumerate(weights) if its_place == place)


def weight_places(on_host: Iterable[int], count: int, on_ranks: Iterable[int] = ()) -> tuple[WeightPlace, ...]:
    """Return `MemoryPlan.weights` of a model.

    Args:
        on_host: numbers of the layers whose frozen weights are in host memory.
        count: number of layers.
        on_ranks: numbers of the layers whose frozen weights the processes of the run share.
    """
    places: dict[int, WeightPlace] = dict.fromkeys(on_ranks, "ranks")
    places |= dict.fromkeys(on_host, "host")
    return tuple(places.get(layer, "card") for layer in range(count)) if places else ()


def places_alone(weights: tuple[WeightPlace, ...]) -> tuple[WeightPlace, ...]:
    """Return the places of weights for a run of one process, which has nobody to share layers with."""
    return tuple("card" if place == "ranks" else place for place in weights)


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
    return _parse_layers(text, LEVEL_NAMES, count)


def parse_weight_places(text: str, count: int | None = None) -> tuple[WeightPlace, ...]:
    """Parse the places of weights from text such as "card:8,host" or "card+host:32" (by turns).

    Arguments and errors are those of `parse_save_levels`.
    """
    return _parse_layers(text, WEIGHT_PLACES, count)


def _parse_layers(text: str, names: Sequence[_Name], count: int | None) -> tuple[_Name, ...]:
    known: dict[str, _Name] = {name: name for name in names}
    found: list[_Name] = []
    for part in text.split(","):
        turns, _, layers = part.strip().partition(":")
        chosen = [name.strip() for name in turns.split("+")]
        counted = not layers or (layers.isdecimal() and len(layers) <= _MOST_DIGITS and int(layers) > 0)
        if not (known.keys() >= set(chosen) and counted):
            raise ValueError(
                f"{part.strip()!r} is not one of {', '.join(names)}, each with a count such as {names[-1]}:8"
            )
        found += islice(cycle([known[name] for name in chosen]), int(layers or len(chosen)))
    if count is not None:
        found = (found + [found[-1]] * count)[:count]
    return tuple(found)


def _joined(names: Sequence[str]) -> str:
    return ",".join(f"{name}:{len(list(group))}" for name, group in groupby(names))


_IS_PLANNED = (unless("train.engine", "plain"), unless("adapter.method", "full"))  # the plain engine has no plan


class MemorySection(Section):
    """The fast engine's use of the device's memory."""

    layers: str = setting(
        AUTO,
        "What layers keep for the backward pass. auto: the fastest mix that fits. Otherwise levels from the first "
        'layer on, such as "attention:12,narrow:8,products". From fastest to smallest: all, rotated, products, '
        "offloaded, narrow, attention, host, input.",
        label="Activations that layers save", used_if=_IS_PLANNED, min_length=1,
    )  # fmt: skip
    weights: str = setting(
        AUTO,
        "Where layers keep their frozen weights. auto: as the plan decides, on the card where there is room. Otherwise "
        'places from the first layer on, such as "card:8,host": card, host (system memory) or ranks (shared out over '
        "the GPUs of the data_parallel strategy).",
        label="Where layers keep their weights", used_if=(*_IS_PLANNED, unless("devices.kind", "cpu")), min_length=1,
    )  # fmt: skip
    budget_gib: float = setting(
        0.0, "Most memory that this run may take on the device. 0: what is free, less a margin.", label="Memory budget",
        unit="GiB", zero="auto", used_if=_IS_PLANNED, step=Step(4.0), ge=0.0, le=16384.0,
    )  # fmt: skip
    mlp_rows: int = setting(
        0, "Tokens that pass the feed-forward at once, 32 or more. 0: as the plan decides.",
        label="Feed-forward chunk (at once)", unit="tokens", zero="auto", used_if=_IS_PLANNED,
        step=Step(1024, doubles=True), ge=0, le=2**24,
    )  # fmt: skip
    head_rows: int = setting(
        0, "Learned tokens whose logits exist at once, 32 or more. 0: as the plan decides.",
        label="Logits chunk (at once)", unit="tokens", zero="auto", used_if=_IS_PLANNED, step=Step(1024, doubles=True),
        ge=0, le=2**24,
    )  # fmt: skip

    @property
    def pins(self) -> list[str]:
        """The pinned parts of the memory plan, each as its setting and the value that would unpin it."""
        found = [f'memory.{name} = "{AUTO}"' for name in ("layers", "weights") if getattr(self, name) != AUTO]
        return found + [f"memory.{name} = 0" for name in ("mlp_rows", "head_rows") if getattr(self, name)]

    @field_validator("mlp_rows", "head_rows")
    @classmethod
    def _worth_a_product(cls, rows: int) -> int:
        if 0 < rows < 32:
            raise ValueError(f"must be 0 or at least 32, not {rows}: products of fewer rows take as long")
        return rows

    @field_validator("layers")
    @classmethod
    def _known_levels(cls, text: str) -> str:
        if text != AUTO:
            parse_save_levels(text)
        return text

    @field_validator("weights")
    @classmethod
    def _known_places(cls, text: str) -> str:
        if text != AUTO:
            parse_weight_places(text)
        return text
