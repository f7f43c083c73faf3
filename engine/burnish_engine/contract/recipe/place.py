"""The machine that a recipe's run is trained on: this one, or one of another kind, as text such as "ssh:office"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

HERE: Final = "here"
PlaceKind = Literal["here", "ssh", "slurm", "sky", "hf"]
"""here: this machine. ssh: a machine that the person's ssh reaches. slurm: a cluster, by sbatch here or on its login
node. sky: a cloud, by SkyPilot. hf: Hugging Face Jobs."""

# A name is given to other programs: it never begins with "-", which would make it an option of theirs.
_NAMES: dict[PlaceKind, tuple[str, str]] = {
    "here": (r"", "nothing"),
    "ssh": (r"[A-Za-z0-9_][\w.@-]*", "a host, as ssh knows it"),
    "slurm": (r"([A-Za-z0-9_][\w.@-]*)?", "the host of a login node, or nothing"),
    "sky": (r"([A-Za-z0-9][\w.-]*)?", "a GPU as SkyPilot calls it, or nothing"),
    "hf": (r"([a-z0-9][a-z0-9-]*)?", "a flavor of Hugging Face Jobs, or nothing"),
}


@dataclass(frozen=True)
class RunPlace:
    """A machine to train on.

    Attributes:
        kind: how it is reached.
        name: host, GPU or flavor; empty where none is named.
    """

    kind: PlaceKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def parse_place(text: str) -> RunPlace:
    """Read a place such as "here", "ssh:user@office", "slurm" or "hf:a10g-small".

    Raises:
        ValueError: The text names no place.
    """
    before, colon, name = text.partition(":")
    kind = next((known for known in get_args(PlaceKind) if known == before), None)
    if kind is None or (colon and not name):
        raise ValueError(f"must be here, ssh:HOST, slurm, slurm:HOST, sky, sky:GPU, hf or hf:FLAVOR, not {text!r:.80}")
    pattern, meaning = _NAMES[kind]
    if not re.fullmatch(pattern, name, flags=re.ASCII):
        raise ValueError(f"must have {meaning} after {kind!r}, not {name!r:.80}")
    return RunPlace(kind, name)
