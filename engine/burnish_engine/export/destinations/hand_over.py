"""Give a run's finished file to a program on this machine. Loads llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from burnish_engine.chat.run_model import trained_model
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import ADAPTER_GGUF, RunPaths
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.contract.serve.export_requests import ProgramName
from burnish_engine.export.destinations.programs import add_to_lm_studio, add_to_ollama
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.runs.store import open_run, read_recipe, with_own_template


def hand_over(run: str, file: str, program: ProgramName, canceled: Callable[[], bool]) -> str:
    """Give a file to a program.

    Args:
        run: name or folder of the run.
        file: name of a GGUF file in its export folder.
        program: program that gets it.
        canceled: callback polled often; True stops the program's client.

    Returns:
        Name of the model in that program.

    Raises:
        UsageError: There is no such run or file, or the program is not installed.
        BurnishError: The program did not take it.
        StoppedError: Canceled.
    """
    paths = open_run(run)
    gguf = _file(paths, file)
    recipe = with_own_template(paths, read_recipe(paths))
    title = recipe.name or paths.root.name
    if program == "lm_studio":
        return add_to_lm_studio(gguf, title, canceled)
    types = {facts.number: quant for quant, facts in GGUF_TYPES.items()}
    quant = types.get(read_header(gguf).metadata.get("general.file_type", -1), gguf.stem)
    source, _ = trained_model(paths, recipe)
    return add_to_ollama(gguf, paths.export / f"ollama-{quant}", source.folder, f"{title}:{quant}", canceled)


def _file(paths: RunPaths, name: str) -> Path:
    """Find a finished file of a run by its name."""
    known = {file.name: file for file in paths.export.glob("*.gguf") if not file.name.endswith(ADAPTER_GGUF)}
    if name not in known:
        raise UsageError(f"The run {paths.root.name} has no file {name}.", "Export it first.")
    return known[name]
