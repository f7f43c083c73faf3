"""Find the programs on this machine that run a finished file. Loads neither torch nor llama.cpp."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from burnish_engine.contract.model_places import lm_studio_folders
from burnish_engine.contract.serve.export_requests import ProgramName


def installed_programs() -> list[ProgramName]:
    """List the programs on this machine that take a file."""
    found: list[ProgramName] = []
    if ollama_program() is not None:
        found.append("ollama")
    if lms_program() is not None or models_folder() is not None:
        found.append("lm_studio")
    return found


def ollama_program() -> str | None:
    """Return the path of Ollama's client; None: not installed."""
    local = os.environ.get("LOCALAPPDATA")  # where Ollama's installer for Windows puts it
    usual = shutil.which(Path(local) / "Programs" / "Ollama" / "ollama") if local else None
    return shutil.which("ollama") or usual


def lms_program() -> str | None:
    """Return the path of LM Studio's client `lms`; None: not installed."""
    usual = (shutil.which(models.parent / "bin" / "lms") for models in lm_studio_folders())
    return shutil.which("lms") or next(filter(None, usual), None)


def models_folder() -> Path | None:
    """Return the usual folder of LM Studio's models; None: there is none."""
    return next((folder for folder in lm_studio_folders() if folder.is_dir()), None)
