"""What a run's folder holds, as far as Try it and Export need to know. A few looks at names; reads no contents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.paths import RunPaths


@dataclass(frozen=True)
class RunFolder:
    """What lies in a run's folder.

    Attributes:
        name: Of the folder; empty: no run.
        trained: Whether there is something trained to talk to or to export.
        whole: Whether what is trained is the whole model, so that there is no adapter.
        exported: Names of finished GGUF files.
    """

    name: str = ""
    trained: bool = False
    whole: bool = False
    exported: tuple[str, ...] = ()


def look_into(folder: str) -> RunFolder:
    """What a run's folder holds now.

    Args:
        folder: Of the run; empty: no run.
    """
    if not folder:
        return RunFolder()
    paths = RunPaths(Path(folder))
    return RunFolder(
        name=paths.root.name,
        trained=any(
            file.is_file() for file in (paths.adapter / "adapter_model.safetensors", paths.model / "model.safetensors")
        ),
        whole=paths.model.is_dir(),
        exported=tuple(sorted(path.name for path in paths.export.glob("*.gguf"))),
    )
