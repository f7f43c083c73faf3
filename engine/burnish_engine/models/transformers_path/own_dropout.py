"""Switch off the dropout that a model of transformers brings along, in training as in evaluation."""

from __future__ import annotations

from typing import Any

from torch import nn

DROPOUT_PART = "drop"
"""Part of the names that models have for probabilities of dropout: attention_dropout, resid_pdrop, layerdrop."""


def switch_off_dropout(model: Any) -> float:
    """Set every probability of dropout to 0: of modules, of numbers that they read, and in their configs.

    Pretraining's dropout would make the loss differ from pass to pass, and the adapter has dropout of its own.

    Args:
        model: model before it gets an adapter.

    Returns:
        The largest probability that was set; 0 where the model had no dropout.
    """
    found = [0.0]
    holders = [one for module in model.modules() for one in (module, getattr(module, "config", None))]
    for holder in {id(one): one for one in holders if hasattr(one, "__dict__")}.values():
        if isinstance(holder, nn.Dropout):
            found.append(holder.p)
            holder.p = 0.0
        for name, value in list(vars(holder).items()):
            if DROPOUT_PART in name and isinstance(value, float) and value > 0.0:
                found.append(value)
                setattr(holder, name, 0.0)
    return max(found)
