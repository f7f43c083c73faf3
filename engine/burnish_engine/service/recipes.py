"""Parse recipes from requests, and derive the key of the dataset that they prepare."""

from __future__ import annotations

import json
from pathlib import Path

from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe, resolve_paths
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection

_RENDERING = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
"""Files of a model's folder that decide what its rows become."""


def read_recipe_text(text: str) -> Recipe:
    """Parse a recipe, resolving relative paths in the server's working folder.

    Raises:
        UsageError: The text is no valid recipe.
    """
    return resolve_paths(parse_recipe(text, source="The recipe"), Path.cwd())


def data_key(recipe: Recipe, *, packing: bool = True) -> str:
    """Make a key that is equal for recipes with the same prepared dataset, as long as no file changes.

    Args:
        recipe: recipe with absolute paths.
        packing: whether the way rows are packed counts, and all that is said of preferences. It only changes what the
            facts say of passes, which a plan scales to other settings, and what is odd about preferences.
    """
    train, preference = recipe.train, recipe.preference
    packed = [train.micro_batch_tokens, train.pack, preference.model_dump(mode="json")] if packing else []
    files = [*recipe.data.files, *recipe.data.validation_files, recipe.data.template]
    stamps = [_stamp(Path(file)) for file in files]
    return json.dumps(
        [model_key(recipe), recipe.data.model_dump(mode="json"), train.seed, rows_of(preference), packed, stamps]
    )


def rows_of(preference: PreferenceSection) -> str:
    """Name what a row becomes: one document, a pair, or a labeled reply."""
    return "pairs" if preference.learns_pairs else "labels" if preference.learns_labels else "rows"


def model_key(recipe: Recipe) -> str:
    """Make a key that is equal for recipes whose model renders and tokenizes rows alike."""
    name = recipe.model.path
    folder = model_dir(name) if is_model_name(name) else Path(name)
    return json.dumps([name, [_stamp(folder / file) for file in _RENDERING]])


def _stamp(path: Path) -> tuple[int, int]:
    try:
        facts = path.stat()
    except OSError:
        return 0, 0
    return facts.st_mtime_ns, facts.st_size
