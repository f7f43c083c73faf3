"""Try a GGUF file in a process of its own: `python -m burnish_engine.models.gguf.gguf_trial FILE`.

llama.cpp ends its process over some files (a failed assertion) instead of returning an error: damaged and hostile ones,
and those of models that its graph does not expect. Files from outside and new ones are opened here first, so that a
person is told instead of losing the program.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, SetupError
from burnish_engine.contract.run.endings import exit_text
from burnish_engine.models.gguf.gguf_library import check_magic

_TOKENS = 4
_MAX_MESSAGE = 3  # exit status for a failure that llama.cpp told itself


def try_file(path: Path, *, is_own: bool = False) -> None:
    """Load a file in a separate process and compute a few tokens.

    Args:
        path: file to try.
        is_own: whether this export just made it, so that a crash is no fault of the file's.

    Raises:
        UsageError: There is no such file, or it is no GGUF.
        SetupError: The file cannot be loaded, or loading it ends the process.
    """
    check_magic(path)
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, str(path)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode == 0:
        return
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == _MAX_MESSAGE:
        raise SetupError(said, "The file may be damaged, cut off, or made for a newer version; make it again.")
    raise SetupError(
        f"llama.cpp crashes over {path.name if is_own else path} ({exit_text(done.returncode, said.splitlines())}).",
        "It does not compute this model; export as safetensors instead."
        if is_own
        else "Do not use this copy of the file: it is damaged, or made to do harm.",
    )


def main(path: str) -> int:
    """Open the file and compute tokens; return the exit status."""
    from burnish_engine.models.gguf.gguf_runtime import GgufModel

    try:
        with GgufModel(Path(path), context=64, threads=1) as model:
            first = model.bos if 0 <= model.bos < model.vocab_size else 0
            model.logits([first] * _TOKENS)
    except BurnishError as error:
        sys.stderr.write(error.what)
        return _MAX_MESSAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
