"""Where a run's layers keep weights and activations, as sentences. No Qt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from burnish_app.look.language import tr
from burnish_engine.contract.recipe.memory_plan import parse_save_levels, parse_weight_places
from burnish_engine.contract.run.fold import RunState

_PLACES: Mapping[str, str] = {
    "card": tr("{n} on the card"),
    "ranks": tr("{n} shared by the GPUs"),
    "host": tr("{n} in system memory"),
}
_LEVELS: Mapping[str, tuple[str, str]] = {
    "all": (tr("{n} keep all"), tr("All activations stay on the card.")),
    "rotated": (
        tr("{n} keep outputs"),
        tr("Outputs of products and of attention, and rotated queries and keys, stay on the card."),
    ),
    "products": (tr("{n} keep outputs"), tr("Outputs of products and of attention stay on the card.")),
    "offloaded": (
        tr("{n} offload the widest"),
        tr("Outputs stay, the widest of them in system memory until the backward pass."),
    ),
    "narrow": (
        tr("{n} recompute the widest"),
        tr("Outputs stay on the card but for the widest, which are computed again."),
    ),
    "attention": (
        tr("{n} recompute"),
        tr("The layer's input and attention's output stay on the card; the rest is computed again."),
    ),
    "host": (
        tr("{n} offload and recompute"),
        tr("The layer's input and attention's output wait in system memory; the rest is computed again."),
    ),
    "input": (
        tr("{n} offload and recompute"),
        tr("The layer's input waits in system memory; all else is computed again."),
    ),
}
"""Save level to what its layers do with activations, in short, and in a sentence."""


def layers_text(events: RunState) -> tuple[str, str]:
    """Say in a line how many layers keep what where, and in further lines what that means.

    Args:
        events: state folded from the run's events so far.

    Returns:
        Line and explanation, both empty where the plan is not known or is one of a later version, and on the CPU, which
        has one memory for all.
    """
    placed = events.layers
    if placed is None or (events.started is not None and events.started.device == "CPU"):
        return "", ""
    try:
        levels = parse_save_levels(placed.activations)
        places = parse_weight_places(placed.weights, len(levels))
    except ValueError:
        return "", ""
    weights = tr("Weights of layers: {places}").format(places=_counted(_PLACES[place] for place in places))
    activations = tr("Activations: {levels}").format(levels=_counted(_LEVELS[level][0] for level in levels))
    meant = [f"{level}: {_LEVELS[level][1]}" for level in _LEVELS if level in levels]
    pinned = tr("From the first layer: {levels}").format(levels=placed.activations)
    return f"{weights}   ·   {activations}", "\n".join((*meant, pinned))


def _counted(forms: Iterable[str]) -> str:
    """Put into each form the number of layers that it is of, in the order in which they come."""
    return ", ".join(form.format(n=count) for form, count in Counter(forms).items())
