"""The plain path: transformers for the base model, PEFT for the adapter.

It is the reference that every fast path is held to, and the fallback for architectures ours does not know. Frozen base
weights are fp32 or bf16; adapter weights are always fp32, so that small updates are not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe_train import AdapterSection
from burnish_engine.models.device import is_out_of_memory
from burnish_engine.models.source import ModelSource
from burnish_engine.models.tokenizer import first_line, quiet_transformers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_base(source: ModelSource, precision: str, device: torch.device) -> Any:
    """The frozen base model in evaluation mode, on the device.

    Args:
        source: The checked model folder.
        precision: "fp32" or "bf16".
        device: Where the weights go.

    Raises:
        SetupError: transformers cannot load it, or weights are missing.
    """
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            source.folder,
            dtype=DTYPES[precision],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **_of_wrapper(source),
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
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
    return model.to(device).eval()


def _of_wrapper(source: ModelSource) -> dict[str, Any]:
    """What `from_pretrained` has to be told to load the language model alone, where the folder holds more."""
    if source.wrapper is None:
        return {}
    from transformers import AutoConfig

    return {"config": AutoConfig.for_model(**source.config), "key_mapping": source.wrapper.key_mapping}


def attach_adapter(model: Any, adapter: AdapterSection, seed: int) -> Any:
    """A new adapter on the base model: A random from the seed, B zero, in fp32.

    Raises:
        UsageError: No layer of the model has any of the asked names.
    """
    from peft import LoraConfig, get_peft_model

    targets: Sequence[str] | str = adapter.targets
    if list(targets) == ["all-linear"]:
        targets = "all-linear"
    else:
        found = _linear_names(model)
        targets = [name for name in targets if name in found]
        if not targets:
            raise UsageError(
                f"None of the adapter targets {adapter.targets} is a linear layer of this model, which has "
                f"{sorted(found)}.",
                'Set adapter.targets to some of these, or to ["all-linear"].',
            )
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha if adapter.alpha % 1 else int(adapter.alpha),
        lora_dropout=adapter.dropout,
        target_modules=targets,
        use_rslora=adapter.method == "rslora",
        use_dora=adapter.method == "dora",
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    return _adapter_in_fp32(get_peft_model(model, config))


def load_adapter(model: Any, folder: Path, *, trainable: bool = False) -> Any:
    """A saved PEFT adapter on the base model.

    Raises:
        SetupError: The folder is not a PEFT adapter for this model.
    """
    from peft import PeftModel

    if not (folder / "adapter_model.safetensors").is_file():
        raise SetupError(f"{folder} holds no adapter (adapter_model.safetensors).", "Check the run or folder given.")
    try:
        tuned = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
    except (ValueError, RuntimeError, KeyError, OSError, SafetensorError) as error:
        raise SetupError(
            f"The adapter in {folder} does not fit this model: {first_line(error)}.", "Use it with its own base."
        ) from error
    return _adapter_in_fp32(tuned)


def skipped_targets(model: Any, adapter: AdapterSection) -> list[str]:
    """Asked target names that the model does not have."""
    if adapter.targets == ["all-linear"]:
        return []
    found = _linear_names(model)
    return [name for name in adapter.targets if name not in found]


def trainable_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """Name and parameter of everything that is trained, in a fixed order."""
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def _adapter_in_fp32(model: Any) -> Any:
    for _, value in trainable_parameters(model):
        value.data = value.data.float()
    return model


def _linear_names(model: Any) -> set[str]:
    head = model.get_output_embeddings()
    return {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
