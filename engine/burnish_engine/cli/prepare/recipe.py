"""`burnish recipe`: writes, checks and explains recipes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.cli.terminal import out, print_json
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import must_be_new, write_atomic
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import expand_home, is_address, is_model_name
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe, setting_notes
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe, recipe_schema, reference_page
from burnish_engine.data.files.hub_datasets import dataset_name

app = typer.Typer(help="Write, check and explain recipes.", no_args_is_help=True)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("recipe.toml"),
    data: Annotated[
        list[str] | None,
        typer.Option(help="Training file or hf://datasets/OWNER/NAME; may be given more than once."),
    ] = None,
    model: Annotated[str, typer.Option(help='"embedded", a folder, or the name of a model.')] = "embedded",
) -> None:
    """Write a recipe with every key, its default and its help."""
    must_be_new(path, "recipe")
    files = [_as_written(file, path.resolve().parent) for file in data or []]
    if is_address(model):
        raise UsageError(f"{model} is an address.", "Give the model's name, OWNER/NAME, or its folder.")
    base = model if model == "embedded" or is_model_name(model) else str(Path(model).absolute())
    recipe = Recipe(model=ModelSection(path=base), data=DataSection(files=files))
    write_atomic(path, dump_recipe(recipe, comments=True))
    out.print(f"Wrote {path}. Edit it, then: burnish train {typed(path)}")


def _as_written(name: str, folder: Path) -> str:
    """Express a data file's path as the recipe in `folder` names it; the address of a dataset stays as it is.

    A relative path to a file under that folder or beside it stays relative, so that both can be moved together.
    """
    if is_address(name):
        dataset_name(name)  # refuses other addresses
        return name
    file = expand_home(name)
    absolute = file.absolute()
    if file.is_absolute():
        return str(absolute)
    try:
        relative = Path(os.path.relpath(absolute.parent.resolve() / absolute.name, folder))
    except ValueError:  # another drive (Windows)
        return str(absolute)
    return str(absolute) if relative.parts.count("..") > 1 else relative.as_posix()


@app.command()
def check(path: Annotated[Path, typer.Argument(help="Recipe to check.")]) -> None:
    """Say whether a recipe is right and its files are there.

    If not, say what is wrong.
    """
    recipe = load_recipe(path)
    from burnish_engine.data.templates.template import check_template
    from burnish_engine.models.saved_adapters.start_adapter import as_started

    check_template(recipe.data.template)
    started = as_started(recipe).adapter
    notes = [*_data_notes(recipe.data), *_model_notes(recipe)]
    out.print(f"{path} is a valid recipe.")
    for note in (*notes, *setting_notes(recipe)):
        out.print(f"note: {note}")
    if started.start:
        out.print(
            f"note: It continues from the adapter in {started.start}: {started.method} of rank {started.rank}, alpha "
            f"{started.alpha:g}, dropout {started.dropout:g}, on {', '.join(started.targets)}."
        )


def _data_notes(data: DataSection) -> list[str]:
    """Look for the data files, and note what was not looked for: nothing is downloaded."""
    from burnish_engine.data.files.discover import find_parts

    names = [*data.files, *data.validation_files]
    find_parts([name for name in names if not is_address(name)])
    notes = [f"Whether {name} exists was not looked up." for name in names if is_address(name)]
    return notes if data.files else ["It names no training files yet (data.files is empty).", *notes]


def _model_notes(recipe: Recipe) -> list[str]:
    """Open the model, and note where it has to be downloaded first."""
    from burnish_engine.models.checkpoint.source import open_model

    name = recipe.model.path
    if is_model_name(name) and not model_dir(name).is_dir():
        here = recipe.devices.where == HERE
        return [f"The model {name} is not on this machine. Get it: burnish models fetch {name}"] if here else []
    if name != "embedded":
        open_model(name)
    return []


@app.command()
def reference() -> None:
    """Print the reference of all keys as Markdown."""
    print_json(reference_page())


@app.command()
def schema() -> None:
    """Print the JSON schema, for editors that check TOML."""
    print_json(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
