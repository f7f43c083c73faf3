"""A stand-in for ssh that needs no sshd: runs the script that it is given on this machine, or fails as ssh does."""

import os
import shlex
import sys

import pytest

SCRIPT = """#!/bin/sh
for last; do :; done
if [ -s {words} ]; then cat {words} >&2; exit 255; fi
exec sh -c "$last"
"""


class FakeSsh:
    """What `BURNISH_SSH_COMMAND` names.

    Attributes:
        command: value of BURNISH_SSH_COMMAND.
        jobs: folder there for jobs and environments.
    """

    def __init__(self, folder):
        if os.name == "nt":
            pytest.skip("other machines have a POSIX shell")
        self._words, self.jobs = folder / "words", folder / "burnish"
        program = folder / "ssh"
        program.write_text(SCRIPT.format(words=shlex.quote(str(self._words))), encoding="utf-8")
        self.command = f"sh {shlex.quote(str(program))}"

    def fail(self, words=""):
        """Let it fail with these words from now on; without any it works again."""
        self._words.write_text(words, encoding="utf-8")

    def use(self, patch):
        """Let Burnish use it, with this Python there and no other installation than of the wheel that is sent."""
        patch.setenv("BURNISH_SSH_COMMAND", self.command)
        patch.setenv("BURNISH_REMOTE_FOLDER", str(self.jobs))
        patch.setenv("BURNISH_REMOTE_PYTHON", sys.executable)
