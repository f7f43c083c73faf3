"""Opens the way to a place by its name."""

from __future__ import annotations

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.place import RunPlace
from burnish_engine.remote.backends.backend import Backend
from burnish_engine.remote.backends.shell import LocalShell, SshShell
from burnish_engine.remote.backends.sky import SkyBackend
from burnish_engine.remote.backends.slurm import SlurmBackend
from burnish_engine.remote.backends.ssh import SshBackend


def open_backend(place: RunPlace) -> Backend:
    """Return the way to a place. Nothing is contacted yet.

    Raises:
        UsageError: The place is this machine.
    """
    where = str(place)
    match place.kind:
        case "ssh":
            return SshBackend(where, SshShell(place.name))
        case "slurm":
            return SlurmBackend(where, SshShell(place.name) if place.name else LocalShell())
        case "hf":
            from burnish_engine.remote.backends.hf import HfBackend  # with an HTTP library, which no other way needs

            return HfBackend(where, place.name)
        case "sky":
            return SkyBackend(where, place.name)
        case _:
            raise UsageError(f"{where!r} is no other machine.", "Name one, such as ssh:HOST.")
