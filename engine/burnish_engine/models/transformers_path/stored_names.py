"""Names of a transformers model's tensors in the files that it is loaded from, where the two differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch


def stored_names(config: dict[str, Any], stored: Collection[str]) -> dict[str, str]:
    """Map the names of a model's tensors to the names of the stored tensors with the same numbers.

    Tensors that transformers builds from several stored ones, or from a part of one, are left out.

    Args:
        config: parsed config.json of the checkpoint.
        stored: names of the tensors in the checkpoint's files.

    Source: transformers `core_model_loading.convert_and_load_state_dict_in_model`, which renames in this way.
    """
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[str(config.get("model_type"))].from_dict(dict(config)))
    steps, tensors = get_model_conversion_mapping(model), model.state_dict()
    renamings = [step for step in steps if isinstance(step, WeightRenaming)]
    converters = [step for step in steps if isinstance(step, WeightConverter)]
    found = {}
    for name in sorted(stored, key=dot_natural_key):
        renamed, converter = rename_source_key(name, renamings, converters, model.base_model_prefix, tensors)
        if converter is None and renamed in tensors:
            found[renamed] = name
    return found
