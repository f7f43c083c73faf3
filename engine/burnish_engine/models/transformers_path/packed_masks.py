"""Explicit attention masks that keep packed documents apart, for models that make none from positions.

transformers makes block-diagonal masks from positions that restart, but some of its models (gpt_oss in 5.23) do not
pass the positions on to where masks are made. Equal masks given from outside replace them: one for each kind of layer,
sliding windows and chunks included.
"""

from __future__ import annotations

from typing import Any

import torch


def document_masks(model: Any, positions: torch.Tensor) -> Any:
    """Make masks for a model's `attention_mask`: one per kind of layer, or one for all; None where none is needed.

    Masks are `[1, 1, T, T]`, as the model's own attention wants them: boolean for sdpa, added numbers for eager.

    Args:
        model: transformers model, with or without PEFT adapter.
        positions: position of each token within its document `[1, T]`.

    Source: transformers `masking_utils.create_masks_for_generate`, which models take prepared masks from.
    """
    from transformers.masking_utils import create_masks_for_generate

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    like = base.get_input_embeddings().weight
    shape = torch.empty(1, positions.shape[1], 0, dtype=like.dtype, device=positions.device)
    return create_masks_for_generate(base.config, shape, None, None, position_ids=positions)
