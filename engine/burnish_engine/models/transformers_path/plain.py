"""The plain path: transformers for the base model, PEFT for the adapter.

It is the reference for every fast path, and the fallback for architectures that Burnish's decoder does not know. Frozen
base weights are fp32 or bf16; adapter weights are always fp32, so that small updates are not lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.checkpoint.open_checkpoint import open_checkpoint
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer import first_line, quiet_transformers
from burnish_engine.models.device.device import is_out_of_memory
from burnish_engine.models.families import stores_gguf
from burnish_engine.models.families.adapter_targets import expert_rank, has_name, is_target
from burnish_engine.models.families.experts import parameter_name
from burnish_engine.models.families.matrices import TAKEN_FOR_EXPERTS
from burnish_engine.models.families.rules.mixture import SLOT_KEYS
from burnish_engine.models.saved_adapters.adapter_files import AdapterFiles, part_of, reached_modules, read_files
from burnish_engine.models.saved_adapters.name_patterns import plain_names
from burnish_engine.models.saved_adapters.peft_form import as_peft_reads
from burnish_engine.models.saved_adapters.saved_adapter import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    read_config,
    refuse_missing,
    refuse_not_finite,
    refuse_other_ranks,
    refuse_strange,
)
from burnish_engine.models.transformers_path.delta_kernels import switch_over
from burnish_engine.models.transformers_path.fp32_modules import compute_in_fp32
from burnish_engine.models.transformers_path.model_shape import PlacedMatrix, placed_matrices, placed_tables
from burnish_engine.models.transformers_path.peft_import import import_peft

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_base(source: ModelSource, precision: str, device: torch.device) -> Any:
    """Load the frozen base model in evaluation mode, on the device.

    Args:
        source: checked model folder.
        precision: dtype name "fp32" or "bf16".
        device: device that the weights go to.

    Raises:
        SetupError: transformers cannot load it, or weights are missing.
    """
    quiet_transformers()
    try:
        loader, files = _loader(source)
        model, report = loader.from_pretrained(
            **files,
            dtype=DTYPES[precision],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **_of_wrapper(source),
            **_unpacked(source),
        )
    except Exception as error:  # transformers builds foreign configs, which can end in errors of any kind
        if is_out_of_memory(error):
            raise
        raise SetupError(
            f"The model in {source.folder} could not be loaded: {first_line(error)}.",
            "Check that all its files are there and whole.",
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise SetupError(
            f"The weights in {source.folder} lack {len(missing)} tensors, first {missing[0]}; they would be random.",
            "Download the model again.",
        )
    if source.wrapper is not None:
        model._weight_conversions = None  # saving would give the tensors the names that they have in the whole model
    model.requires_grad_(False)
    model.config.use_cache = False
    switch_over(model, device)
    return model.to(device).eval()


def _loader(source: ModelSource) -> tuple[Any, dict[str, Any]]:
    """Return the class that loads a model, and its arguments that are the weights: a folder, or those of a GGUF."""
    with IMPORT_LOCK:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if not stores_gguf(source.config):
        return AutoModelForCausalLM, {"pretrained_model_name_or_path": source.folder}
    settings = {key: value for key, value in source.config.items() if key != "quantization_config"}
    config = AutoConfig.for_model(**settings)
    with open_checkpoint(source) as checkpoint:
        state = {name: checkpoint.read(name) for name in checkpoint.names()}
    files = {"pretrained_model_name_or_path": None, "config": config, "state_dict": state}
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], files


def _of_wrapper(source: ModelSource) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that load the language model alone, where the folder holds more."""
    if source.wrapper is None:
        return {}
    with IMPORT_LOCK:
        from transformers import AutoConfig

    return {"config": AutoConfig.for_model(**source.config), "key_mapping": source.wrapper.key_mapping}


def _unpacked(source: ModelSource) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that unpack MXFP4 weights, whose own kernels have no backward pass."""
    stored = source.config.get("quantization_config")
    if not isinstance(stored, dict) or stored.get("quant_method") != "mxfp4":
        return {}
    from transformers import Mxfp4Config

    return {"quantization_config": Mxfp4Config(dequantize=True)}


def attach_adapter(model: Any, adapter: AdapterSection, seed: int) -> Any:
    """Add a new adapter for targets that `check_targets` accepts to the base model: A random, B zero, in fp32."""
    peft = import_peft()
    placed = [*placed_matrices(model), *placed_tables(model)]
    chosen = [one for one in placed if is_target(one.matrix, adapter.targets, inside=one.layer is not None)]
    modules, parameters = _peft_targets(model, chosen, adapter.targets)
    slots = (getattr(model.config, key, None) for key in SLOT_KEYS)
    of_experts = expert_rank(adapter, int(next(filter(None, slots), 0)))
    config = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha if adapter.alpha % 1 else int(adapter.alpha),
        lora_dropout=adapter.dropout,
        target_modules=modules,
        target_parameters=parameters or None,
        rank_pattern=dict.fromkeys(parameters, of_experts) if of_experts != adapter.rank else {},
        use_rslora=adapter.method == "rslora",
        use_dora=adapter.method == "dora",
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    with _names_as_they_are():
        return _adapter_in_fp32(peft.get_peft_model(model, config))


def _peft_targets(
    model: Any, chosen: Sequence[PlacedMatrix], targets: Sequence[str]
) -> tuple[list[str] | str, list[str]]:
    """Return PEFT's `target_modules` and `target_parameters`: the shortest names that mean just the chosen matrices."""
    linear = {one.module for one in chosen if one.matrix.form == "linear"}
    stacked = {one.path for one in chosen if one.matrix.form == "stacked"}
    asked = [name for name in targets if any(has_name(path, name) for path in linear)]
    short = asked or sorted({path.rpartition(".")[2] for path in linear})
    everything = [name for name, _ in model.named_modules()]
    exact = {path for path in everything if any(has_name(path, name) for name in short)} == linear
    parameters = sorted({parameter_name(path) for path in stacked})
    named = {path for path, _ in model.named_parameters() if any(has_name(path, name) for name in parameters)}
    return short if exact else sorted(linear), parameters if named == stacked else sorted(stacked)


def _has_names_of(model: Any, folder: Path) -> bool:
    """Return whether a saved adapter names modules as this model does, not as transformers 4 named them."""
    modules = {name for name, _ in model.named_modules()}
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
        parts = [part_of(name) for name in file.keys()]  # noqa: SIM118
    paths = {part.module.rpartition(".")[0] if part.kind == "whole" else part.module for part in parts}
    return {path.replace(".base_layer", "") for path in paths} <= modules


@contextmanager
def _names_as_they_are() -> Iterator[None]:
    """Make PEFT take names as those of the loaded model inside the block.

    WORKAROUND: PEFT 0.21 converts adapters of transformers 4, and takes names of transformers 5 for such. Of mixtures
    it takes gate_proj, up_proj and down_proj, wherever they stand, for experts, and so loses shared experts and dense
    layers; where a new name contains the old one (laguna's shared_experts), it leaves tensors unread
    (https://github.com/huggingface/peft/blob/main/src/peft/utils/transformers_weight_conversion.py). It can go when
    PEFT converts only names that the model does not have.
    """
    import_peft()
    from peft.utils import transformers_weight_conversion as conversion

    usual = conversion.convert_peft_config_for_transformers, conversion.convert_peft_adapter_state_dict_for_transformers
    conversion.convert_peft_config_for_transformers = lambda *_args, **_named: None
    conversion.convert_peft_adapter_state_dict_for_transformers = lambda adapter_state_dict, **_named: (
        adapter_state_dict
    )
    try:
        yield
    finally:
        (
            conversion.convert_peft_config_for_transformers,
            conversion.convert_peft_adapter_state_dict_for_transformers,
        ) = usual


def load_adapter(model: Any, folder: Path, *, trainable: bool = False) -> Any:
    """Load a saved PEFT adapter onto the base model.

    Raises:
        SetupError: The folder does not hold a PEFT adapter for this model, not all of its tensors or others, or some of
            its values are infinite or no numbers.
    """
    peft = import_peft()
    files = read_files(folder)
    refuse_other_ranks(folder, files.config, files.shapes)
    try:
        stored = load_file(folder / WEIGHTS_FILE)
        copies = _base_copies(model, folder, stored)
        same_names = _has_names_of(model, folder)
        config = _peft_config(model, files, by_modules=same_names)
        with _names_as_they_are() if same_names else nullcontext():
            with _unchanged_tables(model) if copies else nullcontext():
                tuned = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=trainable, config=config)
            wanted = set(peft.get_peft_model_state_dict(tuned, save_embedding_layers=False)) if same_names else set()
            _adapter_in_fp32(tuned)
            # Once more: from_pretrained does not tell which tensors it had no place for, and rounded whole modules.
            by_prompt = tuned.peft_config["default"].is_prompt_learning
            strange = [] if by_prompt else peft.set_peft_model_state_dict(tuned, stored).unexpected_keys
    except (ValueError, RuntimeError, LookupError, TypeError, AttributeError, OSError, SafetensorError) as error:
        raise SetupError(
            f"The adapter in {folder} does not fit this model: {first_line(error)}.", "Use it with its own base."
        ) from error
    plain_names = (name.replace(".default", "") for name in strange)  # PEFT adds .weight to a magnitude's
    refuse_strange(folder, {name if name in stored else name.removesuffix(".weight") for name in plain_names})
    refuse_missing(folder, wanted - stored.keys())  # PEFT only warns, and leaves them as they are when new
    broken = [name for name, value in stored.items() if not value.isfinite().all()]
    refuse_not_finite(folder, broken)
    return tuned


def _base_copies(model: Any, folder: Path, stored: dict[str, torch.Tensor]) -> list[str]:
    """Take the copies of embedding and head that PEFT saves beside adapters on them out; they must be the model's."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    copies = [name for name in stored if part_of(name).kind == "frozen"]
    for name in copies:
        part, copy = part_of(name), stored.pop(name)
        own = weights.get(f"{part.module}.weight")
        coarse = copy.dtype if own is None or copy.dtype.itemsize < own.dtype.itemsize else own.dtype
        if own is None or own.shape != copy.shape or not torch.equal(own.to(coarse).cpu(), copy.to(coarse)):
            raise SetupError(
                f"The adapter in {folder} was trained on another {part.module} than this model's, of which it holds a "
                f"copy ({name}).",
                "Use it with its own base.",
            )
    return copies


@contextmanager
def _unchanged_tables(model: Any) -> Iterator[None]:
    """Put embedding and head back after the block, in which PEFT writes the adapter's own copies over them."""
    tables = [one for one in (model.get_input_embeddings(), model.get_output_embeddings()) if one is not None]
    before = [table.weight.detach().clone() for table in tables]
    yield
    with torch.no_grad():
        for table, weight in zip(tables, before, strict=True):
            table.weight.copy_(weight)


def _peft_config(model: Any, files: AdapterFiles, *, by_modules: bool) -> Any | None:
    """Return PEFT's config with names in place of regular expressions; None where it is as the file has it."""
    paths = {part_of(name).module.replace(".base_layer", "") for name in files.tensors}
    paths |= {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
    own = plain_names(files.folder, files.config, paths)
    if not own and not by_modules:
        return None
    peft = import_peft()
    config = (
        _config_by_modules(peft, files.folder) if by_modules else peft.PeftConfig.from_pretrained(str(files.folder))
    )
    for key, value in own.items():
        setattr(config, key, value)
    return config


def read_adapter(model: Any, folder: Path) -> None:
    """Read the weights of a saved adapter of the same form into a model that has one."""
    peft = import_peft()
    with _names_as_they_are() if _has_names_of(model.get_base_model(), folder) else nullcontext():
        stored = load_file(folder / WEIGHTS_FILE)
        trained = {name: value for name, value in stored.items() if part_of(name).kind != "frozen"}
        peft.set_peft_model_state_dict(model, trained)


def save_adapter(model: Any, folder: Path) -> None:
    """Write PEFT's two files, so that plain PEFT has a place for each tensor (`saved_adapters.peft_form`)."""
    model.create_or_update_model_card = lambda _folder: None  # an empty form, slower than the weights
    # Embedding and head that have an adapter stay as they are: no copies of them, as PEFT would write.
    model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)
    base, path = model.get_base_model(), folder / CONFIG_FILE
    if path.is_file() and _converts(base):
        from peft.tuners.lora.layer import ParamWrapper

        modules = dict(base.named_modules())
        paths = reached_modules(read_files(folder).tensors)
        linear = [name for name in paths if name in modules and not isinstance(modules[name], ParamWrapper)]
        config = as_peft_reads(folder, json.loads(path.read_text(encoding="utf-8")), linear)
        path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _converts(base: Any) -> bool:
    """Return whether PEFT takes linear layers of this model for experts' maps by their names."""
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    config = import_peft().LoraConfig(target_modules=sorted(TAKEN_FOR_EXPERTS))
    convert_peft_config_for_transformers(config, model=base, conversions=None)
    return bool(config.target_parameters)


def _config_by_modules(peft: Any, folder: Path) -> Any:
    """Read PEFT's config, with linear layers named as such where the file names their weights."""
    config, said = peft.PeftConfig.from_pretrained(str(folder)), read_config(folder)
    if getattr(config, "target_parameters", None) != said.get("target_parameters"):
        config.target_modules, config.target_parameters = set(said["target_modules"]), said["target_parameters"]
        config.rank_pattern, config.alpha_pattern = said.get("rank_pattern") or {}, said.get("alpha_pattern") or {}
    return config


def trainable_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """Return name and parameter of everything that is trained, in a fixed order."""
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def _adapter_in_fp32(model: Any) -> Any:
    for _, value in trainable_parameters(model):
        value.data = value.data.float()
    compute_in_fp32(model)
    return model
