"""Lists the places where a recipe could train, to choose from instead of typing one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import cache

from burnish_engine.contract.recipe.place import HERE, parse_place

REACHED = "place"
"""Name of the places that were reached before, among the recently used of the preferences."""
_PROGRAMS = {"slurm": "sbatch", "sky": "sky"}  # service -> program here that reaches it
_SERVICES_OF_ALL = ("hf",)  # reached without a program of its own


def known_places(reached: Iterable[str], used: Iterable[str]) -> list[str]:
    """List this machine, places that are known, and services that can be reached from here.

    Args:
        reached: places that answered before, newest first.
        used: places of runs, newest first; empty texts are this machine.
    """
    services = [service for service, program in _PROGRAMS.items() if _is_installed(program)]
    places = dict.fromkeys((HERE, *reached, *used, *services, *_SERVICES_OF_ALL))
    return [place for place in places if _is_place(place)]


def _is_place(text: str) -> bool:
    try:
        parse_place(text)
    except ValueError:  # of another version
        return False
    return True


@cache
def _is_installed(program: str) -> bool:
    return shutil.which(program) is not None
