"""The catalog of models people fine-tune: `assets/models.toml`, read into `CatalogModel`s. Loads no torch."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from burnish_engine.advise.facts.gguf_rules import gguf_refusal
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.advice import CatalogModel
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import assets_dir
from burnish_engine.models.checkpoint.spec import decoder_spec

EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The catalog's name of the model that comes with Burnish (recipe: "embedded")."""

_NO_WINDOW: dict[str, Any] = {
    "sliding_window": None
}  # TOML has no null; where the key is absent some families have one
_WEIGHT_BYTES = 2  # the catalog's checkpoints are bf16 where they do not say otherwise


@functools.cache
def catalog() -> tuple[CatalogModel, ...]:
    """The catalog's models, in the order of the file.

    Raises:
        SetupError: The file is missing or damaged.
    """
    path = assets_dir() / "models.toml"
    try:
        return read_catalog(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError) as error:
        raise SetupError(f"The model catalog {path} cannot be read: {error}.", "Reinstall Burnish.") from error


def read_catalog(text: str) -> tuple[CatalogModel, ...]:
    """Read the models of a catalog.

    Args:
        text: catalog as TOML, in the form of `assets/models.toml`.

    Raises:
        ValueError: The text is not TOML, a shape is not understood, or a value is wrong.
        LookupError: A model names no shape or an unknown one.
    """
    document = tomllib.loads(text)
    return tuple(_model(entry, document["shape"]) for entry in document["model"])


@functools.cache
def published_config(model_type: str) -> dict[str, Any]:
    """Return what config.json says of the first model of a type in the catalog; empty where it has none.

    Args:
        model_type: name of the type, as in config.json.
    """
    return next((config for config in shape_configs().values() if config["model_type"] == model_type), {})


@functools.cache
def shape_configs() -> dict[str, dict[str, Any]]:
    """Return what config.json says of each shape in the catalog, by the shape's name."""
    document = tomllib.loads((assets_dir() / "models.toml").read_text(encoding="utf-8"))
    return {name: _expand(_NO_WINDOW | shape) for name, shape in document["shape"].items()}


def find_model(name: str, models: Iterable[CatalogModel] | None = None) -> CatalogModel | None:
    """Find a model by name, ignoring case; the part after the slash, or the title, is enough where it is unique.

    Args:
        name: name of the model, such as "Qwen/Qwen3-0.6B", "qwen3-0.6b" or "Qwen3 0.6B".
        models: models to look among; by default the whole catalog.
    """
    wanted = name.casefold()
    known = list(catalog() if models is None else models)
    for model in known:
        if model.name.casefold() == wanted:
            return model
    short = [model for model in known if wanted in (model.name.casefold().rpartition("/")[2], model.title.casefold())]
    return short[0] if len(short) == 1 else None


def unconfirmed(model: CatalogModel) -> list[str]:
    """Say which facts of a model no source confirmed; empty: all were confirmed."""
    return [f"The catalog's facts are not all confirmed: {model.unchecked}"] if model.unchecked else []


def fetched_models(models: Iterable[CatalogModel]) -> frozenset[str]:
    """The names of the models that were fetched to this machine."""
    return frozenset(model.name for model in models if model_dir(model.name).is_dir())


def recipe_path(name: str) -> str:
    """Return what names a model of this machine in a recipe; the one that comes with Burnish has a name of its own."""
    return "embedded" if name == EMBEDDED and not model_dir(name).is_dir() else name


def search(query: str, models: Sequence[CatalogModel]) -> list[CatalogModel]:
    """Find the models whose name, title, family, kind, purpose, license or languages hold every word of a query.

    Args:
        query: words separated by white space; an empty query finds all models.
        models: models to look among.
    """
    words = query.casefold().split()
    return [model for model in models if all(word in _text(model) for word in words)]


def _text(model: CatalogModel) -> str:
    parts = (model.name, model.title, model.family, model.kind, model.good_for, model.languages, model.license)
    return " ".join(parts).casefold()


def _model(entry: dict[str, Any], shapes: dict[str, dict[str, Any]]) -> CatalogModel:
    facts = dict(entry)
    config = _expand({**_NO_WINDOW, **shapes[facts.pop("shape")], **facts.pop("config", {})})
    spec = decoder_spec(config)
    if spec is None:
        raise ValueError(f"the shape of {entry['name']} is not understood")
    facts.setdefault("download_bytes", facts["parameters"] * _WEIGHT_BYTES)
    return CatalogModel(spec=spec, exports=gguf_refusal(spec.family, spec, {}) is None, **facts)


def _expand(config: dict[str, Any]) -> dict[str, Any]:
    """Write a shape's short forms out as config.json's lists, one entry a layer."""
    layers = range(config["num_hidden_layers"])
    conv_but, full_every = config.pop("conv_but", None), config.pop("full_every", 0)
    no_rope_every = config.pop("no_rope_every", 0)
    if conv_but is not None:
        config["layer_types"] = ["full_attention" if layer in conv_but else "conv" for layer in layers]
    if config.pop("all_attention", False):
        config["layer_types"] = ["attention" for _ in layers]
    if full_every:
        kinds = ("sliding_attention", "full_attention")
        config["layer_types"] = [kinds[(layer + 1) % full_every == 0] for layer in layers]
    if no_rope_every:
        config["no_rope_layers"] = [int((layer + 1) % no_rope_every != 0) for layer in layers]
    return config
