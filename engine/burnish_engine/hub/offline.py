"""Whether the person wants no network.

Burnish sets HF_HUB_OFFLINE for itself, so that no library reaches for the network unasked. What the person had set
before that is kept in BURNISH_OFFLINE, which child processes inherit.
"""

from __future__ import annotations

import os

OFFLINE_VARIABLE = "BURNISH_OFFLINE"
"""1: nothing is downloaded. 0: `burnish models fetch` may, whatever the two below say."""
_HUB_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = {"1", "ON", "YES", "TRUE"}  # as huggingface_hub reads its own variables


def keep_persons_choice() -> None:
    """Remember what the person set, before Burnish sets HF_HUB_OFFLINE. Does nothing in a child of such a process."""
    if not os.environ.get(OFFLINE_VARIABLE):
        os.environ[OFFLINE_VARIABLE] = "1" if is_offline() else "0"


def is_offline() -> bool:
    """Whether the person asked for no network."""
    own = os.environ.get(OFFLINE_VARIABLE, "")
    if own:
        return own.upper() in _TRUE
    return any(os.environ.get(name, "").upper() in _TRUE for name in _HUB_VARIABLES)
