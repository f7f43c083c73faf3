"""Lets a machine that ssh reaches answer a window: `burnish serve` there, its lines carried by ssh."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
from contextlib import suppress

from burnish_engine.contract.errors import BurnishError, SetupError, UsageError
from burnish_engine.contract.recipe.place import RunPlace
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.remote.backends.on_host import HostFolder, send_bundle
from burnish_engine.remote.backends.shell import SshShell
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.bundle.wheel import own_wheel, pinned
from burnish_engine.remote.there.job_folder import BundleManifest


def serve_there(place: RunPlace) -> int:
    """Answer requests from standard input by a server there until the input closes; return its exit status.

    Args:
        place: machine that ssh reaches.

    Raises:
        UsageError: The place is another kind of machine.
        SetupError: The machine refuses us or cannot be reached.
    """
    if place.kind != "ssh":
        raise UsageError(f"Only a machine that ssh reaches can answer, not {place}.", "Name one, such as ssh:HOST.")
    shell = SshShell(place.name)
    try:
        folder = _make_environment(shell)
    except DroppedError as dropped:
        raise SetupError(f"{place} cannot be reached: {dropped}.", "Try again.") from None
    try:
        return subprocess.run(
            shell.command("exec " + folder.module("burnish_engine.cli.main", "serve")), check=False
        ).returncode
    finally:
        with suppress(DroppedError, BurnishError):
            folder.remove()


def _make_environment(shell: SshShell) -> HostFolder:
    """Send Burnish, with the embedded model, where the machine has not the same one already."""
    wheel = own_wheel()
    texts = {"constraints.txt": ("\n".join(pinned(wheel.requirements)) + "\n").encode(), wheel.name: wheel.content}
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    bundle = Bundle(wheel, True, BundleManifest(run="serve", files=hashes), _texts=texts)
    return send_bundle(shell, bundle, f"serve-{secrets.token_hex(4)}")
