"""Does plain PEFT read a saved adapter? It is loaded as any program would, on the model without weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from burnish_engine.models.checkpoint.meta_model import meta_model
from burnish_engine.models.checkpoint.safetensors_header import stored_tensors
from burnish_engine.models.checkpoint.tokenizer import first_line
from burnish_engine.models.saved_adapters.saved_adapter import WEIGHTS_FILE
from burnish_engine.models.transformers_path.peft_import import import_peft

_INSTEAD = "Merge it (--to safetensors), or use it through Burnish, which reads all of it."


def why_peft_reads_less(config: Mapping[str, Any], folder: Path) -> str:
    """Explain in two sentences why plain PEFT does not read all of a saved adapter; empty where it does.

    PEFT itself only warns, or says nothing, about tensors that it has no place for. The tensors' names and shapes are
    compared, on torch's meta device, so that this takes seconds and no memory for any model.

    Args:
        config: config.json of the model that the adapter belongs to.
        folder: folder of the adapter.
    """
    peft = import_peft()
    stored = stored_tensors(folder / WEIGHTS_FILE)
    said = f"PEFT {peft.__version__}"
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = copy.deepcopy(meta_model(config))
            tuned = peft.get_peft_model(model, peft.PeftConfig.from_pretrained(str(folder)))
            tensors = {name: torch.empty(one.shape) for name, one in stored.items()}
            result = peft.set_peft_model_state_dict(tuned, tensors)
    except Exception as error:  # noqa: BLE001  PEFT and foreign models end in errors of any kind
        return f"{said} does not load this adapter: {first_line(error)}. {_INSTEAD}"
    lost = result.unexpected_keys
    new = [name for name in result.missing_keys if ".lora_" in name]
    if lost:
        return f"{said} leaves out {len(lost)} of this adapter's {len(stored)} tensors, first {min(lost)}. {_INSTEAD}"
    return f"{said} finds no {min(new)} in this adapter, and begins it anew. {_INSTEAD}" if new else ""
