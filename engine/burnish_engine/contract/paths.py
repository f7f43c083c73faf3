"""Names the paths on disk: bundled assets, per-user folders, and the files of a run folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from burnish_engine.contract.errors import SetupError

HOME_VARIABLE = "BURNISH_HOME"
"""Environment variable that moves everything Burnish keeps for a person under one folder (tests, portable installs)."""

ADAPTER_GGUF = "-lora.gguf"
"""End of the name of a GGUF file that holds an adapter alone."""


def assets_dir() -> Path:
    """Folder of bundled assets, in a checkout (`assets/`) and in an installed wheel (`burnish_engine/assets`) alike.

    Raises:
        SetupError: Neither folder exists: the installation is damaged.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "assets", package.parents[1] / "assets"):
        if (candidate / "samples").is_dir():
            return candidate
    raise SetupError(f"Burnish's bundled assets were not found beside {package}.", "Reinstall Burnish.")


def general_text_path() -> Path:
    """File of the general text on which forgetting is measured: JSON lines with a passage each."""
    return assets_dir() / "general_text" / "passages.jsonl"


def expand_home(path: str | Path) -> Path:
    """Put the home folder in place of a leading `~` or `~user`; leave the path as it is where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def user_data_dir() -> Path:
    """Folder for runs, leases and the queue. `BURNISH_HOME` overrides the platform's usual place."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) if home else Path(platformdirs.user_data_dir("burnish", appauthor=False))


def user_cache_dir() -> Path:
    """Folder for what can be made again: converted models, tokenized datasets."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) / "cache" if home else Path(platformdirs.user_cache_dir("burnish", appauthor=False))


def models_dir() -> Path:
    """Folder of models that were fetched by name."""
    return user_data_dir() / "models"


def downloads_dir() -> Path:
    """Folder of the queue of downloads."""
    return models_dir() / ".downloads"


def runs_dir() -> Path:
    """Folder that holds the run folders made without an explicit `--run-dir`."""
    return user_data_dir() / "runs"


def sweeps_dir() -> Path:
    """Folder with a file for each sweep: its settings and its runs."""
    return user_data_dir() / "sweeps"


def duels_dir() -> Path:
    """Folder that holds the duels made without an explicit `--out`."""
    return user_data_dir() / "duels"


def benches_dir() -> Path:
    """Folder with a file for each benchmark that is running."""
    return user_data_dir() / "benches"


def past_runs_file() -> Path:
    """File with what past runs took, which predictions are corrected by."""
    return user_data_dir() / "past-runs.json"


def past_export_file() -> Path:
    """File with the time that each stage of the last export took."""
    return user_data_dir() / "past-export.json"


def links_file() -> Path:
    """File with what was measured of the links between GPUs."""
    return user_data_dir() / "links.json"


def file_hashes_file() -> Path:
    """File with the hashes of large model files that were read before."""
    return user_data_dir() / "file-hashes.json"


CACHED_MODEL = "models--"
"""Beginning of the name of a model's folder in the hub's cache."""


def cached_model_name(folder: Path) -> str:
    """Return OWNER/NAME of a snapshot in the hub's cache, whose folder is named by its revision; else empty."""
    repository = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not repository.startswith(CACHED_MODEL):
        return ""
    return repository.removeprefix(CACHED_MODEL).replace("--", "/", 1)


_RESERVED_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}/[A-Za-z0-9][\w.\-]{0,95}", flags=re.ASCII)


_ADDRESS = re.compile(r"[a-z][a-z0-9+.\-]+://", flags=re.ASCII | re.IGNORECASE)


def is_address(text: str) -> bool:
    """Whether a text is an address, such as "hf://datasets/OWNER/NAME" or "https://...", and no path on disk."""
    return _ADDRESS.match(text) is not None


def is_hub_name(text: str) -> bool:
    """Whether a text has the form of a model's name on a hub, such as "Qwen/Qwen3-0.6B"."""
    return _MODEL_NAME.fullmatch(text) is not None and ".." not in text


def is_model_name(text: str) -> bool:
    """Whether a recipe's `model.path` is a name such as "Qwen/Qwen3-0.6B", no file and no folder that exists."""
    return is_hub_name(text) and not text.lower().endswith(".gguf") and not Path(text).exists()


def fetched_model_dir(name: str) -> Path:
    """Folder that holds, or would hold, a model fetched by name.

    Args:
        name: name of the model, as in `is_model_name`.
    """
    owner, _, model = name.partition("/")
    return models_dir() / f"{safe_name(owner)}--{safe_name(model)}"


def safe_name(text: str, fallback: str = "unnamed") -> str:
    """Make a safe file name from any text: no separators, no leading dots, none of Windows' reserved device names.

    Args:
        text: any text, such as a model's name found in a data file.
        fallback: name to return when nothing usable is left.
    """
    name = re.sub(r"[^\w.\-+ ]+", "-", text, flags=re.UNICODE).strip(" .-")[:100].strip(" .-")
    if not name or name.split(".")[0].lower() in _RESERVED_NAMES:
        return fallback
    return name


class _Within:
    """A path within the folder of a run."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, run: RunPaths, _owner: type) -> Path:
        return run.root.joinpath(*self._parts)


@dataclass(frozen=True)
class RunPaths:
    """The files of one run folder. Each has exactly one writer; the guide's table says who."""

    root: Path

    recipe = _Within("recipe.toml")
    """Frozen recipe, written once by the engine."""
    template = _Within("chat_template.jinja")
    """The chat template that rows were written with, where the recipe names a file; written once by the engine."""
    start = _Within("start")
    """Copy of the adapter that the run continues from; written once by the engine."""
    events = _Within("events.jsonl")
    """Append-only events, one JSON object a line."""
    hardware = _Within("hardware.jsonl")
    """Samples of the hardware, one JSON object a line, appended by the engine; old ones are merged."""
    state = _Within("state.json")
    """Atomically replaced summary of the run's state."""
    process_end = _Within("process_end.json")
    """Record of how the newest detached process ended, written by its parent."""
    card = _Within("card.json")
    """Record of the run's inputs: hashes, versions, device; atomically replaced by the engine."""
    remote = _Within("remote.json")
    """Record of the job on another machine that trains the run; written by the process that follows it."""
    control = _Within("control.jsonl")
    """Commands from any client, appended under a lock."""
    notes = _Within("notes.json")
    """Name, tags and notes by the person."""
    votes = _Within("votes.json")
    """Blind votes by the person on replies of the run's model and others."""
    task_rows = _Within("task_rows.json")
    """Held-out rows that the run's replies are scored on."""
    held_out = _Within("held_out.json")
    """Token ids and conversations of the held-out rows that exported files are checked against."""
    replay = _Within("replay.jsonl")
    """Rows that the base wrote and the run learns among its own; written once by the engine."""
    stdout_log = _Within("stdout.log")
    """Standard output of a detached engine process."""
    stderr_log = _Within("stderr.log")
    """Standard error and tracebacks of the engine process."""
    checkpoints = _Within("checkpoints")
    """One folder a checkpoint; trusted only with its completion marker."""
    adapter = _Within("adapter")
    """The trained adapter in PEFT format."""
    model = _Within("model")
    """The trained model, where every weight was trained: a folder that transformers loads."""
    export = _Within("export")
    """Finished files with their fidelity report."""
    export_job = _Within("export", "job.json")
    """State of the newest export, replaced by the export process."""
    export_cancel = _Within("export", "job.cancel")
    """File whose presence asks a running export to stop."""
    export_end = _Within("export", "process_end.json")
    """Record of how the process of the newest export ended, written by its parent."""
    export_log = _Within("export", "job.log")
    """Output of a detached export."""
