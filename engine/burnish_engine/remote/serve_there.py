"""Lets a machine that ssh reaches answer a window: `burnish serve` there, its lines carried by ssh.

Before that server's own lines come messages with an empty id: `progress` on how the connection is made, and a `failure`
where it cannot be made or broke.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO

from burnish_engine.contract.errors import BurnishError, SetupError, UsageError
from burnish_engine.contract.recipe.place import RunPlace
from burnish_engine.contract.serve.messages import Failure, Progress
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.remote.backends.on_host import HostFolder, send_bundle
from burnish_engine.remote.backends.shell import Shell, SshShell, run
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.bundle.wheel import own_wheel, pinned
from burnish_engine.remote.there.job_folder import BundleManifest

_LAST_LINES, _LAST_CHARACTERS = 4, 400
# The folder is needed to make the environment only: nothing has to be cleaned up however the connection ends.
_SERVE = 'python=$(readlink {folder}/python) || exit; rm -rf -- {folder}; exec sh "$python" -m {module} serve'


def serve_there(place: RunPlace) -> int:
    """Answer requests from standard input by a server there until the input closes; return its exit status.

    Args:
        place: machine that ssh reaches.

    Raises:
        UsageError: The place is another kind of machine.
        SetupError: The machine refuses us or cannot be reached, or the connection broke.
    """
    if place.kind != "ssh":
        raise UsageError(f"Only a machine that ssh reaches can answer, not {place}.", "Name one, such as ssh:HOST.")
    try:
        return _answer(place, SshShell(place.name))
    except BurnishError as error:
        _say(Failure(id="", what=error.what, remedy=error.remedy, exit_code=error.exit_code))
        raise


def _answer(place: RunPlace, shell: Shell) -> int:
    _announce(f"Connecting to {place}")
    try:
        run(shell, "true")  # refusals come at once, before anything is packed
        folder = _make_environment(place, shell)
    except DroppedError as dropped:
        raise SetupError(f"{place} cannot be reached: {dropped}.", "Try again.") from None
    _announce(f"Starting the engine of {place}")
    script = _SERVE.format(folder=shlex.quote(folder.path), module="burnish_engine.cli.main")
    with subprocess.Popen(shell.command(script), stderr=subprocess.PIPE) as server:
        words: list[str] = []
        reader = threading.Thread(target=_hand_on, args=(server.stderr, words), daemon=True)
        reader.start()
        status = server.wait()
        reader.join(1.0)
    if status:
        why = " ".join(words)[-_LAST_CHARACTERS:] or f"status {status}"
        raise SetupError(f"The connection to {place} ended: {why}.".replace("..", "."), "Connect again.")
    return status


def _make_environment(place: RunPlace, shell: Shell) -> HostFolder:
    """Send Burnish, with the embedded model, where the machine has not the same one already."""
    wheel = own_wheel()
    texts = {"constraints.txt": ("\n".join(pinned(wheel.requirements)) + "\n").encode(), wheel.name: wheel.content}
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    bundle = Bundle(wheel, True, BundleManifest(run="serve", files=hashes), _texts=texts)
    _announce(f"Looking for this Burnish on {place}; the first time it is installed there, which takes minutes")
    return send_bundle(shell, bundle, f"serve-{secrets.token_hex(4)}")


def _hand_on(pipe: IO[bytes] | None, last: list[str]) -> None:
    """Copy what ssh and the server say to this process's standard error, and keep the last lines."""
    with suppress(OSError, ValueError):
        while pipe is not None and (line := pipe.readline(10_000)):
            text = line.decode("utf-8", errors="replace").strip()
            if text:
                last.append(text)
                del last[:-_LAST_LINES]
            if sys.stderr is not None:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()


def _announce(what: str) -> None:
    _say(Progress(id="", what=what, done=0, total=0))


def _say(message: Progress | Failure) -> None:
    """Write a message on a line of its own: the server there may have ended within one."""
    begin = "\n" if isinstance(message, Failure) else ""
    with suppress(OSError, ValueError):  # nobody reads any more
        sys.stdout.write(f"{begin}{message.model_dump_json()}\n")
        sys.stdout.flush()
