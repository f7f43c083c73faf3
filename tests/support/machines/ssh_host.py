"""A host that ssh reaches: an sshd of this test's own on this machine, behind a wire that can be cut."""

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

HOST = "office"


class Wire:
    """Hands connections on to a port, and can cut them all."""

    def __init__(self, port):
        self._target, self._pairs, self._lock, self.down = port, [], threading.Lock(), False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.opened = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if self.down:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._pairs.append((near, far))
                self.opened += 1
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Cut every connection; new ones are let through unless `down` is set."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.cut()
        self._server.close()


class SshHost:
    """An sshd with keys of its own, known to an ssh configuration of its own as `office`.

    Attributes:
        home: BURNISH_HOME there.
        jobs: folder there for jobs and environments.
        command: value of BURNISH_SSH_COMMAND.
        wire: what connections go through.
    """

    def __init__(self, folder, environment=()):
        self.folder = Path(folder)
        self.home, self.jobs = self.folder / "home", self.folder / "burnish"
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        for name in ("host", "client"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd asks for it when root starts it
        port = _free_port()
        self.wire = Wire(port)
        variables = {"BURNISH_HOME": self.home, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **dict(environment)}
        settings = {
            "Port": port, "ListenAddress": "127.0.0.1", "HostKey": self.folder / "host", "PidFile": "none",
            "AuthorizedKeysFile": self.folder / "client.pub", "StrictModes": "no", "PasswordAuthentication": "no",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in variables.items()),
        }  # fmt: skip
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        log = (self.folder / "sshd.log").open("wb")
        self._process = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        self._write_client()
        _until_open(port)
        self.command = f"ssh -F {self.folder / 'ssh_config'}"

    def _write_client(self):
        self.know_key()
        settings = {
            "HostName": "127.0.0.1", "Port": self.wire.port, "User": getpass.getuser(),
            "IdentityFile": self.folder / "client", "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.folder / "known_hosts", "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "yes",
        }  # fmt: skip
        lines = "".join(f"  {name} {value}\n" for name, value in settings.items())
        (self.folder / "ssh_config").write_text(f"Host {HOST}\n{lines}")

    def know_key(self):
        """Let the client know the host's key."""
        self._write_known("host")

    def forget_key(self):
        """Let the client know another key of the host than it has."""
        self._write_known("client")

    def _write_known(self, name):
        key = (self.folder / f"{name}.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.wire.port} {key[0]} {key[1]}\n")

    def close(self):
        """End it, and the jobs that a failed test left behind."""
        self.wire.close()
        for record in self.jobs.glob("jobs/*/job.json"):
            with contextlib.suppress(OSError, ValueError):
                os.killpg(json.loads(record.read_text())["pid"], signal.SIGKILL)
        self._process.terminate()
        self._process.wait(10)

    def use(self, patch):
        """Let Burnish use it: this Python there, and no other installation than of the wheel that is sent."""
        patch.setenv("BURNISH_SSH_COMMAND", self.command)
        patch.setenv("BURNISH_REMOTE_FOLDER", str(self.jobs))
        patch.setenv("BURNISH_REMOTE_PYTHON", sys.executable)


def require_sshd():
    """Skip where this machine has no sshd, or no client."""
    missing = [name for name in ("ssh", "ssh-keygen", "tar") if not shutil.which(name)]
    if not shutil.which("sshd") and not Path("/usr/sbin/sshd").is_file():
        missing.append("sshd (Debian: openssh-server)")
    if missing or os.name == "nt":
        pytest.skip(f"not installed: {', '.join(missing) or 'a POSIX host'}")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _until_open(port):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("sshd does not listen")
