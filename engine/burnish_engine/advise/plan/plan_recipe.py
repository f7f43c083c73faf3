"""Plans a recipe: collects the model's shape, from its folder or the catalog, and the machine's facts."""

from __future__ import annotations

from burnish_engine.advise.facts.catalog import find_model, unconfirmed
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.hardware.probe import probe
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.spec import rough_spec
from burnish_engine.models.checkpoint.tokenizer_file import check_token_ids
from burnish_engine.models.saved_adapters.start_adapter import StartAdapter, open_start, refuse_other_base


def plan_recipe(
    recipe: Recipe,
    *,
    dataset: DatasetFacts | None = None,
    machine: MachineFacts | None = None,
    launched: bool = False,
) -> RunPlan:
    """Plan a recipe on this machine, as it is now.

    Args:
        recipe: recipe of the run; its model may be one of the catalog that is not downloaded yet.
        dataset: facts that `inspect` found with this recipe; None where not inspected.
        machine: facts of the machine; probed when not given.
        launched: whether torchrun says which GPUs train, so that those of the recipe need not exist.

    Raises:
        UsageError: The model is neither a folder nor in the catalog, the recipe names a GPU that is not there, or its
            `adapter.start` holds no adapter.
        SetupError: The model folder is unusable, its tokenizer is another model's, or its config does not say the
            model's shape; or the adapter to continue from is damaged or of another model.
    """
    machine = machine or probe()
    start = open_start(recipe.adapter)
    begins: list[str] = []
    if start is not None:
        recipe = recipe.model_copy(update={"adapter": start.section})
        begins = [_start_note(start)]
    name = recipe.model.path
    if is_model_name(name) and not model_dir(name).is_dir():
        entry = find_model(name)
        if entry is not None:
            size = entry.download_bytes
            plan = plan_run(recipe, entry.spec, machine, dataset=dataset, download_bytes=size, launched=launched)
            return plan.model_copy(update={"notes": [*begins, *unconfirmed(entry), *plan.notes]})
    source = open_model(name)
    check_token_ids(source)
    if start is not None:
        refuse_other_base(start, source)
    plan = plan_run(
        recipe,
        spec_of(source),
        machine,
        dataset=dataset,
        config=source.config,
        weights_bytes=weights_bytes(source),
        launched=launched,
    )
    wraps = [source.note] if source.wrapper is not None else []
    return plan.model_copy(update={"notes": [*begins, *wraps, *plan.notes]})


def _start_note(start: StartAdapter) -> str:
    """Say what an adapter to continue from brings along, whatever the recipe says."""
    own = start.section
    beyond = f" It also trains {', '.join(one.text for one in own.beyond)}." if own.beyond else ""
    return (
        f"Continues from the adapter in {start.folder}, with its method ({own.method}), rank ({own.rank}) and targets "
        f"({', '.join(own.targets)}); the recipe's do not count.{beyond}"
    )


def spec_of(source: ModelSource) -> DecoderSpec:
    """Read a model's shape; for families that this version does not know, a rough one with exact matrices.

    Raises:
        SetupError: The config does not say the shape.
    """
    spec = source.spec or _measured_spec(source) or rough_spec(source.config)
    if spec is None:
        raise SetupError(
            f"The config.json in {source.folder} does not say the model's shape in keys that Burnish knows "
            f"(model_type {source.config.get('model_type')!r}).",
            "Training may work; what it will take cannot be predicted.",
        )
    return spec


def _measured_spec(source: ModelSource) -> DecoderSpec | None:
    from burnish_engine.models.transformers_path.model_shape import measured_spec  # loads torch

    return measured_spec(source.config)


def weights_bytes(source: ModelSource) -> int:
    """The size of the weights on disk, bytes; `open_model` made sure that they exist."""
    return sum(file.stat().st_size for file in source.weight_files)
