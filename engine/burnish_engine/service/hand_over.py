"""Give a run's finished file to a program on this machine, in a process that may load llama.cpp."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.channel.job import Job
from burnish_engine.chat.run_model import trained_model
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import ADAPTER_GGUF, RunPaths
from burnish_engine.contract.serve.export_requests import HandOverRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.export.destinations.programs import add_to_lm_studio, add_to_ollama
from burnish_engine.export.gguf.header import read_header
from burnish_engine.export.quantize.quantize import FILE_TYPES
from burnish_engine.runs.store import open_run, read_recipe, with_own_template


def hand_over(request: HandOverRequest, job: Job) -> Result:
    """Give a file to a program.

    Raises:
        UsageError: There is no such run or file, or the program is not installed.
        BurnishError: The program did not take it.
    """
    paths = open_run(request.run)
    gguf = _file(paths, request.file)
    recipe = with_own_template(paths, read_recipe(paths))
    title = recipe.name or paths.root.name
    job.progress(f"Giving {gguf.name} to {request.program}", 0, 0)
    if request.program == "lm_studio":
        called = add_to_lm_studio(gguf, title, lambda: job.canceled)
    else:
        types = {number: name for name, number in FILE_TYPES.items()}
        quant = types.get(read_header(gguf).metadata.get("general.file_type", -1), gguf.stem)
        source, _ = trained_model(paths, recipe)
        folder = paths.export / f"ollama-{quant}"
        called = add_to_ollama(gguf, folder, source.folder, f"{title}:{quant}", lambda: job.canceled)
    return Result(id=request.id, detail=called)


def _file(paths: RunPaths, name: str) -> Path:
    """Find a finished file of a run by its name.

    Raises:
        UsageError: There is none.
    """
    known = {file.name: file for file in paths.export.glob("*.gguf") if not file.name.endswith(ADAPTER_GGUF)}
    if name not in known:
        raise UsageError(f"The run {paths.root.name} has no file {name}.", "Export it first.")
    return known[name]
