"""Tells whether the person asked for no network.

Burnish sets HF_HUB_OFFLINE for itself, so that no library uses the network unasked. The person's own choice is kept in
BURNISH_OFFLINE, which child processes inherit.
"""

from __future__ import annotations

import os

OFFLINE_VARIABLE = "BURNISH_OFFLINE"
"""Environment variable: 1 forbids downloads, 0 allows `burnish models fetch`, whatever HF_HUB_OFFLINE says."""
GO_ONLINE = f"Unset HF_HUB_OFFLINE and {OFFLINE_VARIABLE}, or set {OFFLINE_VARIABLE}=0 for Burnish alone."
"""Remedy where the person asked for no network and something needs it."""
_HUB_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = {"1", "ON", "YES", "TRUE"}  # huggingface_hub reads its own variables in the same way


def remember_offline_choice() -> None:
    """Keep the person's choice before Burnish sets HF_HUB_OFFLINE; a child process keeps its inherited one."""
    if not os.environ.get(OFFLINE_VARIABLE):
        os.environ[OFFLINE_VARIABLE] = "1" if is_offline() else "0"


def is_offline() -> bool:
    """Whether the person asked for no network."""
    own = os.environ.get(OFFLINE_VARIABLE, "")
    if own:
        return own.upper() in _TRUE
    return any(os.environ.get(name, "").upper() in _TRUE for name in _HUB_VARIABLES)
