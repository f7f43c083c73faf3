"""`burnish plan` without a recipe: the largest model, the longest row and the largest pass that fit."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from burnish_engine.cli.terminal import err, out, print_json, styled
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.capacity import LIMIT_TEXT, METHOD_TEXT, DeviceCapacity, LargestPass, ModelCapacity
from burnish_engine.contract.units import memory_size


def answer_what_fits(model: str, gpu_gib: float | None, *, skip_data: bool, json: bool) -> int:
    """Compute what fits and print it.

    Args:
        model: name of the only model to judge; empty: the usual ones and the largest.
        gpu_gib: memory of the card to plan for, GiB; None: this machine.
        skip_data: option that is refused: there is no data to skip.
        json: whether to print one JSON document.

    Raises:
        UsageError: The model or the card does not exist, or an option makes no sense.
    """
    from burnish_engine.advise.facts.catalog import catalog, fetched_models
    from burnish_engine.advise.suggest.capacity import find_capacity
    from burnish_engine.advise.suggest.suggest import chosen_model
    from burnish_engine.hardware.probe import probe

    if skip_data:
        raise UsageError("--skip-data is about a recipe's data, and no recipe was given.", "burnish plan RECIPE.toml")
    if gpu_gib is not None and gpu_gib <= 0:
        raise UsageError(f"--gpu-gib {gpu_gib:g} is no card's memory.", "Give GiB, such as 8 or 24.")
    only = None
    if model:
        folder = Path(model).is_dir() and model != "embedded"
        only = chosen_model(str(Path(model).absolute()) if folder else model, catalog(), fetched_models(catalog()))
    with err.status("working out what fits") as status:
        answer = find_capacity(
            probe(),
            catalog(),
            only=only,
            gpu_gib=gpu_gib or 0.0,
            progress=lambda title, _done, _total: status.update(Text(f"working out what fits: {title}")),
        )
    if json:
        print_json(answer.model_dump_json(indent=2))
    else:
        show_what_fits(answer, only=bool(only))
    return ExitCode.DONE if any(one.longest for one in answer.models) else ExitCode.DOES_NOT_FIT


def show_what_fits(answer: DeviceCapacity, *, only: bool = False) -> None:
    """Print the answer.

    Args:
        answer: result to print.
        only: whether it is about one requested model, so that the reason why something does not fit is given in full.
    """
    free, total = answer.memory_free_bytes, answer.memory_total_bytes
    room = "" if free == total else f": {memory_size(free)} of {memory_size(total)} free"
    if answer.device != "CPU":
        room += f", with {memory_size(answer.host_free_bytes)} of system memory free"
    out.print(styled("[bold]What fits on {}[/]{}", answer.device, room))
    _say_largest(answer)
    fitting = [one for one in answer.models if one.longest]
    if fitting:
        _print_table("Longest row, alone in its pass", [(one, one.longest) for one in fitting], rows=False)
        about = f"Biggest pass of rows of {answer.row_tokens:,} tokens"
        _print_table(about, [(one, one.biggest) for one in fitting], rows=True)
        out.print()
    _say_misfits(answer, only=only)
    for note in answer.notes:
        out.note(note)
    how = f"adapters of rank {answer.rank}, {answer.precision}, every token learned"
    speed = f" Speed: {answer.speed_source}." if answer.speed_source else ""
    out.dim(f"All of it is predicted, not measured: {how}.{speed}")


def _say_largest(answer: DeviceCapacity) -> None:
    for one in answer.models:
        reach = one.biggest or one.longest
        if one.largest and reach:
            bits = "in 4 bits (QLoRA)" if one.method == "qlora" else f"in {_bits(answer)} bits (LoRA)"
            speed = f"{_rate(reach.tokens_per_s)} tokens/s"
            out.print(styled("Largest model that trains {}: [bold]{}[/], {}", bits, one.title, speed))


def _say_misfits(answer: DeviceCapacity, *, only: bool) -> None:
    none = [one for one in answer.models if not one.longest]
    if only:
        for one in none:
            out.print(styled("[yellow]not as {}:[/] {}", METHOD_TEXT[one.method], one.problem))
        return
    fitting = {one.name for one in answer.models if one.longest}
    titles = dict.fromkeys(one.title for one in none if one.name not in fitting)
    if titles:
        out.dim(f"Do not fit: {', '.join(titles)}. Why: burnish plan --model NAME")


def _print_table(heading: str, reached: list[tuple[ModelCapacity, LargestPass | None]], *, rows: bool) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=heading, title_justify="left")
    table.title_style = "bold"
    table.add_column("model", no_wrap=True)
    table.add_column("as", no_wrap=True)
    for name in (["rows"] if rows else []) + ["tokens", "tokens/s", "peak"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by")
    before = ""
    for one, reach in reached:
        title = "" if one.title == before else one.title
        before = one.title
        cells = [title, METHOD_TEXT[one.method]]
        if reach is None:
            cells += ["-"] * (4 if rows else 3) + ["memory: not one such row"]
        else:
            cells += [f"{reach.rows:,}"] if rows else []
            cells += [f"{reach.tokens:,}", _rate(reach.tokens_per_s), memory_size(reach.memory_bytes)]
            cells.append(LIMIT_TEXT[reach.limited_by])
        table.add_row(*cells)
    out.print()
    out.print(table, soft_wrap=False)


def _bits(answer: DeviceCapacity) -> int:
    return 32 if answer.precision == "fp32" else 16


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}"
