"""Exports of `burnish export` that hold the adapter alone."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.cli.results.export_bar import ExportBar
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.wrapper import Wrapper
from burnish_engine.runs.store import adapter_of


def export_adapter_folder(paths: RunPaths, recipe: Recipe, out_dir: Path, *, each_expert: bool) -> Path:
    """Export the adapter as PEFT's folder."""
    if each_expert:
        from burnish_engine.export.weights.each_expert import export_adapter_by_expert

        return export_adapter_by_expert(open_model(recipe.model.path), adapter_of(paths), out_dir)
    from burnish_engine.export.weights.folders import export_adapter

    return export_adapter(adapter_of(paths), out_dir, _wrapper(recipe))


def export_adapter_file(
    paths: RunPaths, recipe: Recipe, source: ModelSource, name: str, adapter: Path, folder: Path, bar: ExportBar
) -> Path:
    """Export the adapter as a GGUF, proven on the base's file where the run was trained from one."""
    from burnish_engine.chat.device import chat_device
    from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
    from burnish_engine.export.proven_adapter import export_proven_adapter
    from burnish_engine.models.checkpoint.gguf_file.folder import gguf_of
    from burnish_engine.runs.held_out import load_held_out

    base = gguf_of(source.folder)
    if base is None:
        return export_adapter_gguf(source, adapter, folder, name)
    written, found = export_proven_adapter(
        source,
        adapter,
        folder,
        name,
        base,
        held_out=load_held_out(paths)[0],
        device=chat_device(recipe.devices)[0],
        threads=recipe.devices.threads,
        progress=bar.show,
        canceled=bar.canceled,
    )
    bar.say(
        f"llama.cpp adds the adapter to {base.name}, and on {found.positions:,} tokens that is the trained model: mean "
        f"KL divergence {max(found.mean_kl, 0.0):.2g}."
    )
    return written


def why_merged_instead(paths: RunPaths) -> str:
    """Explain why llama.cpp cannot add a run's adapter to a base; empty where it can."""
    from burnish_engine.export.gguf.adapter_file import why_merged

    return why_merged(adapter_of(paths))


def _wrapper(recipe: Recipe) -> Wrapper | None:
    """Return the base's arrangement of language model and other parts; None where it has no others, or is missing."""
    try:
        return open_model(recipe.model.path).wrapper
    except BurnishError:
        return None
