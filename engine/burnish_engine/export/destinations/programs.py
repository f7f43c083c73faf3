"""Give a finished file to a program on this machine that runs it: Ollama or LM Studio.

Sources: https://docs.ollama.com/import, https://lmstudio.ai/docs/cli/local-models/import
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, StoppedError, UsageError
from burnish_engine.contract.paths import safe_name
from burnish_engine.export.destinations.installed import lms_program, models_folder, ollama_program
from burnish_engine.export.destinations.lm_studio import export_lm_studio
from burnish_engine.export.destinations.ollama import export_ollama, model_sampling

_ASK_S = 0.2
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_PUBLISHER = "burnish"
_LONGEST_PART = 80  # characters of a name, and of a tag: Ollama's types/model/name.go


def add_to_ollama(gguf: Path, folder: Path, model: Path, name: str, canceled: Callable[[], bool]) -> str:
    """Make Ollama know a file by a name, with the file's own template and the model's recommended sampling.

    Args:
        gguf: finished, verified file.
        folder: folder for the Modelfile and a hard link to the file.
        model: folder of the base model, whose `generation_config.json` recommends how to sample.
        name: wanted name, with a tag behind the last colon; characters that Ollama does not take are replaced.
        canceled: callback polled often; True stops Ollama's client.

    Returns:
        Name that Ollama knows it by.

    Raises:
        UsageError: Ollama is not installed, or cannot represent the file's template.
        BurnishError: Ollama refused the file, or does not run.
        StoppedError: Canceled.
    """
    program = ollama_program()
    if program is None:
        raise UsageError("Ollama was not found on this machine.", "Install it, or add its folder to PATH.")
    written = export_ollama(gguf, folder, sampling=model_sampling(model))
    called = _ollama_name(name)
    status, said = _run([program, "create", called, "-f", str(written.modelfile)], canceled)
    if status != 0:
        raise BurnishError(
            f"Ollama did not take {gguf.name}: {said or f'its client ended with {status}'}.",
            "Start Ollama if it does not run, then try again.",
        )
    return called


def add_to_lm_studio(gguf: Path, repository: str, canceled: Callable[[], bool]) -> str:
    """Put a file where LM Studio looks: by its own `lms import`, which knows a moved folder, else into the usual one.

    Args:
        gguf: finished, verified file.
        repository: name of the model's folder.
        canceled: callback polled often; True stops `lms`.

    Returns:
        Name that LM Studio lists it by.

    Raises:
        UsageError: LM Studio is not installed.
        BurnishError: `lms` refused the file, and there is no usual folder.
        NoSpaceError: The file does not fit the disk.
        StoppedError: Canceled.
    """
    program, models = lms_program(), models_folder()
    called = f"{_PUBLISHER}/{safe_name(repository, 'model').replace(' ', '-')}"
    if program is not None:
        command = [program, "import", "--yes", "--hard-link", "--user-repo", called, str(gguf)]
        status, said = _run(command, canceled)
        if status == 0:
            return called
        if models is None:
            raise BurnishError(
                f"LM Studio did not take {gguf.name}: {said or f'lms ended with {status}'}.",
                "Start LM Studio once, then try again.",
            )
    if models is None:
        raise UsageError("LM Studio was not found on this machine.", "Install it, and start it once.")
    export_lm_studio(gguf, models, called.partition("/")[2], _PUBLISHER)
    return called


def _ollama_name(name: str) -> str:
    """Return a name that Ollama takes: letters, digits, "-", "_", "." and one colon before the tag."""
    parts = (re.sub(r"[^a-z0-9._-]+", "-", part) for part in name.lower().rsplit(":", 1))
    title, *tag = (part.strip("-._")[:_LONGEST_PART] for part in parts)
    return ":".join([title or "burnish", *filter(None, tag)])


def _run(command: list[str], canceled: Callable[[], bool]) -> tuple[int, str]:
    """Run a program's client; return its exit status and the last line that it said."""
    hidden = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with tempfile.TemporaryFile() as output:
        try:
            client = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, creationflags=hidden
            )
        except OSError as error:
            return 1, error.strerror or str(error)
        with client:
            while client.poll() is None:
                if canceled():
                    client.kill()
                    raise StoppedError("Stopped.")
                try:
                    client.wait(_ASK_S)
                except subprocess.TimeoutExpired:
                    continue
        output.seek(0)
        text = _TERMINAL_CODES.sub("\n", output.read().decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return client.returncode, lines[-1].removeprefix("Error: ").rstrip(".") if lines else ""
