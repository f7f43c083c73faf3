"""Colors of the parts of a memory plan (weights, activations, optimizer and so on). No Qt.

The hue says what the memory is for, the lightness which part it is, so that people who cannot tell the hues still see
where one part ends. Blue, green and purple are those of the theme's series; amber stays with live values. Every color
has a contrast of 3 to 1 or more with the surface that it is drawn on.
"""

from __future__ import annotations

from typing import NamedTuple


class PartColor(NamedTuple):
    """The colors of one memory part in the light and the dark theme, as #rrggbb."""

    light: str
    dark: str


PART_COLORS = {
    # The model's own weights: blue.
    "base weights": PartColor("#1a6aa9", "#65aaeb"),
    "4-bit weights": PartColor("#021763", "#0763f7"),
    "experts": PartColor("#5560e8", "#b0b6e8"),
    "streamed weights": PartColor("#2a4fb5", "#5b7fe0"),
    "shared weights": PartColor("#361f93", "#7847eb"),
    "quantization tables": PartColor("#4e92d7", "#2b7ab5"),
    "master weights": PartColor("#01436d", "#bcdbfe"),
    "unpacked weights": PartColor("#367ec0", "#4992d0"),
    "gathered weights": PartColor("#0c5583", "#7fd0f5"),
    # Trained tensors, their gradients and the optimizer: reddish purple.
    "gradients": PartColor("#984377", "#db84b6"),
    "exchange of gradients": PartColor("#9405b8", "#bc06ea"),
    "expert adapters": PartColor("#c250c6", "#d070d4"),
    "adapter": PartColor("#c66a9c", "#a45488"),
    "tables with trained rows": PartColor("#b01c74", "#d217af"),
    "optimizer": PartColor("#6a1952", "#fec4e0"),
    "optimizer at work": PartColor("#af5689", "#c06c9f"),
    # Tensors that a forward and backward pass computes: bluish green.
    "activations": PartColor("#047957", "#5db995"),
    "workspace": PartColor("#39a381", "#2b8762"),
    "backward pass of a layer": PartColor("#054c33", "#8eeecb"),
    "backward pass of the embedding": PartColor("#1f8e6b", "#45a07b"),
    # The output head and the loss: olive.
    "head and loss": PartColor("#8d933d", "#c5cb7a"),
    "head in 8 bits": PartColor("#4b5c12", "#8a8f33"),
    # Overhead of the process: warm gray.
    "graph pools": PartColor("#523d32", "#e3ccbd"),
    "fragmentation": PartColor("#a0887a", "#80695e"),
    "cuda context": PartColor("#6c554a", "#b0998c"),
    "allocator": PartColor("#866f62", "#988175"),
    "libraries": PartColor("#37231a", "#cab2a4"),
}
"""Color of each part, keyed by the engine's name of it in lower case."""

_OTHER = PartColor("#7f7f92", "#8f93a8")


def part_color(name: str, *, dark: bool) -> str:
    """Return the color of a memory part; a neutral gray for an unknown name.

    Args:
        name: name of the part, as the engine or the legend writes it (case does not matter).
        dark: whether the theme is dark.
    """
    color = PART_COLORS.get(name.lower(), _OTHER)
    return color.dark if dark else color.light
