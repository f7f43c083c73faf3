"""A job's folder on a host with a shell: what ssh, SLURM and SkyPilot have in common."""

from __future__ import annotations

import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from burnish_engine.contract.errors import BurnishError, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.run.commands import Command
from burnish_engine.remote.backends.backend import DroppedError, MirrorPosition
from burnish_engine.remote.backends.shell import Shell, run, run_into, stream
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.there.job_folder import JobEnd
from burnish_engine.remote.there.relay_line import RelayLine, read_line

FOLDER_VARIABLE = "BURNISH_REMOTE_FOLDER"
"""Environment variable here with the folder there for jobs and environments; by default .burnish in the home folder."""
PYTHON_VARIABLE = "BURNISH_REMOTE_PYTHON"
"""Environment variable here with a Python there that has all that Burnish needs: then nothing is installed but it."""
INSTALL_S = 3600.0  # torch with CUDA is some gigabytes
COPY_S = 24 * 3600.0
_CLEAN_UP_S = 30.0
_JOB = "burnish_engine.remote.there.job"
_RELAY = "burnish_engine.remote.there.relay"

_FIND_ROOT = 'root={root}; case "$root" in /*) ;; *) root="$HOME/$root" ;; esac'
# A job's folder has another name until it is whole and somebody was told so; whatever goes wrong before deletes it.
_SENDING = ".sending"
_BEGIN = """
set -eu; umask 077
{find_root}
job="$root/jobs/{name}"; part="$job{sending}"
trap 'exit 1' HUP INT PIPE TERM
trap 'rm -rf -- "$part"' EXIT
"""
_RECEIVE = """
mkdir -p "$root/jobs"
# What a machine left behind that lost its power, or a connection that broke between two scripts.
find "$root/jobs" -maxdepth 1 '(' -name '*{sending}' -o -name 'serve-*' ')' -mtime +1 \\
  -exec rm -rf -- {{}} + 2> /dev/null || true
[ ! -e "$job" ]
mkdir "$part"
tar -xf - -C "$part"
[ -f "$part"/{last} ]  # to tar a stream that was cut between two files is whole
trap - EXIT
"""
_INSTALL = """
env="$root/env/{key}"
exec 9> "$root/env.lock"  # two runs that are sent at once make one environment
if command -v flock > /dev/null; then flock 9 || true; fi
if [ ! -f "$env/ready" ]; then
  rm -rf "$env"; mkdir -p "$env"
  if [ -n {python} ]; then
    {python} -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$env/site" \\
      "$part/{wheel}" 1>&2
    printf 'PYTHONPATH="%s" exec %s -P "$@"\\n' "$env/site" {quoted_python} > "$env/python"
  elif command -v uv > /dev/null; then
    uv venv --quiet --python ">=3.11" "$env/venv" 1>&2
    uv pip install --quiet --python "$env/venv/bin/python" -c "$part/constraints.txt" "$part/{wheel}{extra}" 1>&2
    printf 'exec "%s/venv/bin/python" -P "$@"\\n' "$env" > "$env/python"
  else
    python=
    for one in python3.13 python3.12 python3.11 python3; do
      if "$one" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then python=$one; break; fi
    done
    if [ -z "$python" ]; then echo "no Python 3.11 or newer, and no uv" 1>&2; exit 3; fi
    "$python" -m venv "$env/venv" 1>&2
    "$env/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$part/constraints.txt" \\
      "$part/{wheel}{extra}" 1>&2
    printf 'exec "%s/venv/bin/python" -P "$@"\\n' "$env" > "$env/python"
  fi
  touch "$env/ready"
fi
ln -sfn "$env/python" "$part/python"
mv -- "$part" "$job"
part=$job  # deleted as well where the answer reaches nobody
printf '%s\\n' "$job"
trap - EXIT
"""


@dataclass(frozen=True)
class HostFolder:
    """A job's folder on a host.

    Attributes:
        shell: how the host is reached.
        path: absolute path of the folder there.
    """

    shell: Shell
    path: str

    def module(self, module: str, *arguments: str) -> str:
        """Return the shell command that runs a module of Burnish there."""
        words = [shlex.quote(word) for word in ("-m", module, *arguments)]
        return f"sh {shlex.quote(self.path + '/python')} {' '.join(words)}"

    def job_command(self) -> str:
        """Return the shell command that carries the job out."""
        return self.module(_JOB, self.path)

    def lines(self, position: MirrorPosition) -> Iterator[RelayLine]:
        """Yield the job's progress from a position on."""
        options = ("--events", str(position.events), "--hardware", repr(position.hardware_t))
        for text in stream(self.shell, "exec " + self.module(_RELAY, self.path, *options)):
            if (line := read_line(text)) is not None:
                yield line

    def send(self, command: Command) -> None:
        """Append a command to the run's own; a single short write needs no lock."""
        text = command.model_dump_json().encode() + b"\n"
        file = shlex.quote(self.path + "/run/control.jsonl")
        # Not before the run has made it: a folder with something in it would be no new run.
        begun = f"[ -f {file} ] || {{ echo 'the run has not begun there yet' >&2; exit 1; }}"
        run(self.shell, f"{begun}; cat >> {file}", feed=partial(_write, data=text))

    def write_end(self, end: JobEnd) -> None:
        """Write how a job ended that could not say so itself; a reader sees it whole or not at all."""
        file = shlex.quote(self.path + "/job_end.json")
        text = end.model_dump_json().encode() + b"\n"
        run(self.shell, f"cat > {file}.new && mv -- {file}.new {file}", feed=partial(_write, data=text))

    def fetch(self, files: Sequence[str], target: Path) -> None:
        """Bring files of the run's folder here."""
        names = "".join(f"./{name}\0" for name in files).encode()
        script = f"cd {shlex.quote(self.path + '/run')} && exec tar -cf - --null -T -"
        with tempfile.TemporaryFile(dir=target) as archive:
            room = shutil.disk_usage(target).free // 2  # the archive and what it holds lie here at once
            feed = partial(_write, data=names)
            run_into(self.shell, script, archive, feed=feed, wait_s=COPY_S, most_bytes=room)
            archive.seek(0)
            unpack(archive, target, files)

    def remove(self) -> None:
        """Delete the folder, if it is a job's: its path comes from a record that somebody may have changed."""
        made = shlex.quote(self.path + "/python")
        run(self.shell, f"[ ! -L {made} ] || rm -rf -- {shlex.quote(self.path)}")

    def job(self, where: str, number: str) -> RemoteJob:
        """Return the record of the job in this folder."""
        return RemoteJob(where=where, id=number, folder=self.path)


def find_root() -> str:
    """Return the shell commands that set `root` to the folder there for jobs and environments."""
    return _FIND_ROOT.format(root=shlex.quote(os.environ.get(FOLDER_VARIABLE, "") or ".burnish"))


def send_bundle(shell: Shell, bundle: Bundle, name: str) -> HostFolder:
    """Send a bundle and make its environment, where the host has not one with the same Burnish already.

    Raises:
        DroppedError: The host cannot be reached just now.
        SetupError: The host refuses us, or the environment could not be made.
    """
    python = os.environ.get(PYTHON_VARIABLE, "")
    *_, (last, _) = bundle.files()
    begin = _BEGIN.format(find_root=find_root(), name=name, sending=_SENDING)
    receive = begin + _RECEIVE.format(sending=_SENDING, last=shlex.quote(last))
    install = begin + _INSTALL.format(
        key=bundle.wheel.sha256[:16] + ("-demo" if bundle.needs_demo else "") + ("-own" if python else ""),
        python=shlex.quote(python),
        quoted_python=shlex.quote(shlex.quote(python)),
        wheel=bundle.wheel.name,
        extra="[demo]" if bundle.needs_demo else "",
    )
    try:
        run(shell, receive, feed=bundle.write_tar, wait_s=COPY_S)
        answer = run(shell, install, wait_s=INSTALL_S).strip()
    except BaseException:
        with suppress(DroppedError, BurnishError):  # a shell that was killed could not do it itself
            run(shell, f'{find_root()}; rm -rf -- "$root/jobs/{name}{_SENDING}"', wait_s=_CLEAN_UP_S)
        raise
    if not answer.startswith("/"):
        raise SetupError(f"{shell.host} did not say where the job lies.", "Does its shell print something at login?")
    return HostFolder(shell, answer.splitlines()[-1])


@contextmanager
def kept_if_taken(folder: HostFolder) -> Iterator[None]:
    """Delete a folder that was sent where the place refuses the job inside; where it is unclear, it stays."""
    try:
        yield
    except BurnishError:
        with suppress(DroppedError, BurnishError):
            folder.remove()
        raise


def unpack(archive: IO[bytes], target: Path, names: Sequence[str]) -> None:
    """Unpack plain files of an archive into a folder, and nothing outside of it.

    Args:
        archive: tar archive.
        target: folder to unpack into.
        names: relative paths of the files that were asked for; others are refused.

    Raises:
        SetupError: The archive is damaged, or holds something else.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            wanted = {PurePosixPath(name) for name in names}
            for member in tar:
                if not member.isreg() or member.issparse() or PurePosixPath(member.name) not in wanted:
                    raise SetupError(
                        f"{member.name!r:.200} in the job's result is no plain file of it.", "Look at the run there."
                    )
                tar.extract(member, target, filter="data")
    except tarfile.TarError as error:
        raise SetupError(f"The job's result did not arrive whole: {error}.", "Try again: burnish runs resume") from None


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(data)
