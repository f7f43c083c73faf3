"""A color for every part of a plan's memory. No Qt.

The hue says what the memory is for, the lightness which part it is, so that people who cannot tell the hues still see
where one part ends. Blue, green and purple are those of the theme's series; amber stays with what is live. Every color
has a contrast of 3 to 1 or more with the surface that it is drawn on.
"""

from __future__ import annotations

from typing import NamedTuple


class PartColor(NamedTuple):
    """The same part in the two looks, as #rrggbb."""

    light: str
    dark: str


PART_COLORS = {
    # The model's own weights: blue.
    "base weights": PartColor("#1a6aa9", "#65aaeb"),
    "quantization tables": PartColor("#4e92d7", "#2b7ab5"),
    "master weights": PartColor("#01436d", "#bcdbfe"),
    "unpacked weights": PartColor("#367ec0", "#4992d0"),
    # What is trained: reddish purple.
    "gradients": PartColor("#984377", "#db84b6"),
    "adapter": PartColor("#c66a9c", "#a45488"),
    "optimizer": PartColor("#6a1952", "#fec4e0"),
    "optimizer at work": PartColor("#af5689", "#c06c9f"),
    # What a pass computes: bluish green.
    "activations": PartColor("#047957", "#5db995"),
    "workspace": PartColor("#39a381", "#2b8762"),
    "backward pass of a layer": PartColor("#054c33", "#8eeecb"),
    "backward pass of the embedding": PartColor("#1f8e6b", "#45a07b"),
    # What is read off it: olive.
    "head and loss": PartColor("#8d933d", "#c5cb7a"),
    # What is there for all of it: warm gray.
    "graph pools": PartColor("#523d32", "#e3ccbd"),
    "fragmentation": PartColor("#a0887a", "#80695e"),
    "cuda context": PartColor("#6c554a", "#b0998c"),
    "allocator": PartColor("#866f62", "#988175"),
    "libraries": PartColor("#37231a", "#cab2a4"),
}
"""By the name that the engine gives the part, in small letters."""

_OTHER = PartColor("#7f7f92", "#8f93a8")


def part_color(name: str, *, dark: bool) -> str:
    """The color of a part; a neutral gray for a name that is not known.

    Args:
        name: As the engine or the legend writes it.
        dark: The look.
    """
    color = PART_COLORS.get(name.lower(), _OTHER)
    return color.dark if dark else color.light
