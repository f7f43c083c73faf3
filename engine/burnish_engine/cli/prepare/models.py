"""`burnish models`: ranks the catalog for this machine and the target device."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from burnish_engine.cli.prepare import fetch, radar
from burnish_engine.cli.prepare.targets import DEFAULT_CONTEXT, ContextOption, KindOption, RamOption, target_section
from burnish_engine.cli.terminal import out, print_json, styled
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.advice import RankedModel
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.units import file_size, memory_size

_SHOWN = 10
_VERDICTS = {
    "good": "[green]good[/]",
    "tight": "[yellow]tight[/]",
    "slow": "[yellow]slow[/]",
    "small": "small",
    "too_big_to_train": "[dim]too big here[/]",
    "too_big_for_target": "[dim]too big there[/]",
}


_LOCAL_VERDICTS = {
    "good": "[green]good[/]",
    "tight": "[yellow]tight[/]",
    "unknown": "not judged",
    "too_big": "[dim]too big here[/]",
    "unusable": "[dim]cannot be trained[/]",
}
_PLACES = {
    "burnish": "Burnish",
    "folder": "folder",
    "hub_cache": "hub's cache",
    "lm_studio": "LM Studio",
    "ollama": "Ollama",
}


class _SearchByDefault(TyperGroup):
    """Make `burnish models qwen` mean `burnish models search qwen`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["search", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_SearchByDefault,
    help="List and download models worth fine-tuning. Without a command: search.",
)
app.command("fetch")(fetch.fetch)
app.command("radar")(radar.radar)


@app.command()
def search(
    query: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words that name, family, purpose or license hold.")
    ] = None,
    target: KindOption = "laptop",
    ram_gib: RamOption = 0.0,
    context: ContextOption = DEFAULT_CONTEXT,
    everything: Annotated[bool, typer.Option("--all", help="Show all, not only the first ten.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List models, best first.

    The best train well on this machine and run well on the target: the device that the result will run on.
    """
    from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, fetched_models
    from burnish_engine.advise.facts.catalog import search as search_catalog
    from burnish_engine.advise.suggest.rank import judge_all
    from burnish_engine.hardware.probe import probe

    section = target_section(target, ram_gib, context)
    machine = probe()
    found = search_catalog(" ".join(query or []), catalog())
    judged = judge_all(machine, found, section, here=fetched_models(found) | {EMBEDDED})
    ranked = [model.ranked for model in judged]
    if json:
        print_json("[" + ",\n".join(model.model_dump_json() for model in ranked) + "]")
    else:
        _show(ranked, machine, section, everything=everything)
        if len(ranked) > _SHOWN and not everything:
            again = _search_all(query or [], target, ram_gib, context)
            out.print(styled("[dim]{} more:[/] {}", len(ranked) - _SHOWN, again))
    return ExitCode.DONE


@app.command()
def local(
    target: KindOption = "laptop",
    ram_gib: RamOption = 0.0,
    context: ContextOption = DEFAULT_CONTEXT,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List the models on this machine.

    Each is judged: whether it can be trained here. Looked through are Burnish's own folder, the hub's cache and the
    folders of LM Studio and Ollama. The headers of all weights are checked.
    """
    from burnish_engine.hardware.probe import probe
    from burnish_engine.hub.judge_local import judge_local
    from burnish_engine.hub.local_models import find_local_models

    judged = judge_local(find_local_models(), probe(), target_section(target, ram_gib, context))
    if json:
        print_json("[" + ",\n".join(model.model_dump_json() for model in judged) + "]")
        return ExitCode.DONE
    if not judged:
        out.print("Nothing was fetched, and nothing is in the hub's cache or in the folders of LM Studio and Ollama.")
    for model in judged:
        marks = [styled(_LOCAL_VERDICTS[model.verdict]), Text(_PLACES[model.place]), Text(file_size(model.bytes))]
        out.print(styled("[bold]{}[/]  ", model.name) + Text(" · ").join(marks))
        out.print(styled("  [dim]{}[/]", model.reason))
        if model.verdict != "unusable":
            out.print(styled("  {}", model.folder))
    return ExitCode.DONE


@app.command()
def downloads(
    work: Annotated[bool, typer.Option("--work", help="Carry out what is queued, until nothing is left.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List the downloads that the window queued."""
    from burnish_engine.hub.download_queue import list_downloads

    if work:
        from burnish_engine.hub.download_worker import work_through

        work_through()
    found = list_downloads()
    if json:
        print_json("[" + ",\n".join(entry.model_dump_json() for entry in found) + "]")
        return ExitCode.DONE
    if not found:
        out.print("No download is queued.")
    for entry in found:
        size = f"{file_size(entry.done)} of {file_size(entry.total)}" if entry.total else ""
        speed = f"{file_size(int(entry.bytes_per_s))}/s" if entry.bytes_per_s else ""
        marks = [Text(text) for text in (entry.status, size, speed) if text]
        out.print(styled("[bold]{}[/]  ", entry.name) + Text(" · ").join(marks))
        if entry.message:
            out.print(styled("  [dim]{}[/]", f"{entry.message} {entry.remedy}".strip()))
    return ExitCode.DONE


def _search_all(query: list[str], target: str, ram_gib: float, context: int) -> str:
    """Make the command that lists all results of the same search."""
    options = {"--target": target, "--ram-gib": f"{ram_gib:g}", "--context": str(context)}
    usual = {"--target": "laptop", "--ram-gib": "0", "--context": str(DEFAULT_CONTEXT)}
    changed = [word for name, value in options.items() if value != usual[name] for word in (name, value)]
    return " ".join(["burnish models search", *map(typed, [*query, *changed]), "--all"])


def _show(ranked: list[RankedModel], machine: MachineFacts, target: TargetSection, *, everything: bool) -> None:
    from burnish_engine.advise.plan.recipe_fit import best_gpu
    from burnish_engine.advise.predict.on_target import usable_bytes

    if not ranked:
        out.print("No model of the catalog matches. Fetch any other by name: burnish models fetch OWNER/NAME")
        return
    gpu = best_gpu(machine)
    where = gpu.name.removeprefix("NVIDIA ") if gpu else "this processor"
    out.print(
        f"Trained on {where}, for a {target.kind} of {target.ram_gib:g} GiB "
        f"({memory_size(usable_bytes(target))} usable by a model)"
    )
    shown = ranked if everything else ranked[:_SHOWN]
    for model in shown:
        out.print()
        for line in _lines(model):
            out.print(line)
    out.print()
    first = ranked[0]
    if not first.here and first.verdict in {"good", "tight", "slow"}:
        out.print(f"Get the first: burnish models fetch {first.model.name}")


def _lines(ranked: RankedModel) -> list[Text]:
    model = ranked.model
    marks = [styled(_VERDICTS[ranked.verdict]), Text(model.license + (", gated" if model.gated else ""))]
    if not model.exports:
        marks.append(Text("no GGUF export yet"))
    download = f"download {file_size(ranked.download_bytes)}"
    marks.append(styled("[green]on this machine[/]") if ranked.here else Text(download))
    trains = f"trains in {memory_size(ranked.train_bytes)}"
    if ranked.tokens_per_s:
        trains += f" at {ranked.tokens_per_s:,.0f} tokens/s"
    runs = f"{ranked.quant} file of {file_size(ranked.file_bytes)} runs in {memory_size(ranked.run_bytes)}"
    praised = ranked.verdict == "good" and model.exports
    remark = model.good_for if praised else ranked.reason
    title = styled("[bold]{}[/]  ", model.name) + Text(" · ").join(marks)
    unchecked = (
        [styled("  [yellow]not confirmed:[/] {}", model.unchecked)] if model.unchecked and not ranked.here else []
    )
    return [title, Text(f"  {trains} · {runs}"), styled("  [dim]{}[/]", remark), *unchecked]
