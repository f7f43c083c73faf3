"""A stand-in for Ollama's client: takes `create NAME -f MODELFILE`, checks what it gets, and keeps it in a folder."""

import os
import sys
from pathlib import Path

from burnish_engine.export.destinations.modelfile import read_modelfile


def install(folder, kept, *, refuses="", holds=False):
    """Put the stand-in into a folder for PATH, under the name `ollama`.

    Args:
        folder: folder for PATH.
        kept: folder that gets a file NAME for each model that was created.
        refuses: what it says instead of taking a model.
        holds: whether it never answers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    arguments = [sys.executable, __file__, str(kept), refuses, "hold" if holds else ""]
    if os.name == "nt":
        line = " ".join(f'"{one}"' for one in arguments)
        (folder / "ollama.bat").write_text(f"@{line} %*\n", encoding="utf-8")
        return
    script = folder / "ollama"
    script.write_text("#!/bin/sh\nexec " + " ".join(f"'{one}'" for one in arguments) + ' "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def main(kept, refuses, holds, create, name, flag, modelfile):
    """Answer as the client does: an error on standard error and a status, or the model's name kept."""
    assert (create, flag) == ("create", "-f")
    if holds:
        sys.stdin.read()
        while True:
            os.read(os.pipe()[0], 1)
    if refuses:
        sys.stderr.write(f"\x1b[?25lgathering model components\nError: {refuses}\n")
        return 1
    path = Path(modelfile)
    source = next(one for one in read_modelfile(path.read_text(encoding="utf-8")) if one.word == "from")
    gguf = (path.parent / source.value).resolve()
    assert gguf.read_bytes()[:4] == b"GGUF"
    (Path(kept) / name.replace(":", "+")).write_text(str(gguf), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
