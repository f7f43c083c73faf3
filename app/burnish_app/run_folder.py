"""What a run's folder holds, as far as pages need to know: a few looks at names, and its frozen recipe."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.card import RunCard
from burnish_engine.contract.exports import ExportChoice
from burnish_engine.contract.paths import RunPaths

_ADAPTER = "-lora.gguf"


@dataclass(frozen=True)
class RunFolder:
    """What lies in a run's folder.

    Attributes:
        name: Of the folder; empty: no run.
        trained: Whether there is something trained to talk to or to export.
        whole: Whether what is trained is the whole model, so that there is no adapter.
        exported: Names of finished GGUF files that hold a whole model.
        adapters: Names of those that hold an adapter alone.
        ollama: Names of folders for Ollama.
        lm_studio: Whether there is a folder laid out for LM Studio.
        exports: kinds of export, each with whether it works or why not, from the run's card; empty: not known.
    """

    name: str = ""
    trained: bool = False
    whole: bool = False
    exported: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    ollama: tuple[str, ...] = ()
    lm_studio: bool = False
    exports: tuple[ExportChoice, ...] = ()


def look_into(folder: str) -> RunFolder:
    """What a run's folder holds now.

    Args:
        folder: Of the run; empty: no run.
    """
    if not folder:
        return RunFolder()
    paths = RunPaths(Path(folder))
    files = sorted(path.name for path in paths.export.glob("*.gguf"))
    return RunFolder(
        name=paths.root.name,
        trained=any(
            file.is_file() for file in (paths.adapter / "adapter_model.safetensors", paths.model / "model.safetensors")
        ),
        whole=paths.model.is_dir(),
        exported=tuple(name for name in files if not name.endswith(_ADAPTER)),
        adapters=tuple(name for name in files if name.endswith(_ADAPTER)),
        ollama=tuple(sorted(path.parent.name for path in paths.export.glob("ollama-*/Modelfile"))),
        lm_studio=(paths.export / "lmstudio").is_dir(),
        exports=_exports(paths),
    )


def _exports(paths: RunPaths) -> tuple[ExportChoice, ...]:
    try:
        return tuple(RunCard.model_validate_json(paths.card.read_bytes()).exports)
    except (OSError, ValueError):  # none yet, damaged, or of another version
        return ()


def frozen_section(folder: str, name: str) -> dict[str, Any]:
    """A section of a run's frozen recipe as it stands there; empty where it cannot be read.

    Args:
        folder: Of the run.
        name: Of the section.
    """
    try:
        recipe = tomllib.loads(RunPaths(Path(folder)).recipe.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    section = recipe.get(name, {})
    return section if isinstance(section, dict) else {}
