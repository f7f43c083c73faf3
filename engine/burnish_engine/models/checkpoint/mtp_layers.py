"""Find a checkpoint's layers for multi-token prediction (MTP), which draft further tokens. Loads no torch.

transformers does not load them, and nothing here trains or runs them: files keep them as they were. llama.cpp numbers
them behind the model's own layers (conversion/qwen.py, `_QwenMtpMixin`), and so do the names that they get here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec

_BEGINNING = "mtp."
_LAYERS = "mtp.layers."
_AROUND = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}
"""Modules beside the layers, and their names within the first of them."""


def is_mtp(stored: str) -> bool:
    """Whether a stored tensor belongs to layers for multi-token prediction."""
    return stored.startswith(_BEGINNING)


def check_mtp(folder: Path, stored: Iterable[str]) -> None:
    """Refuse layers for multi-token prediction that are not numbered from 0 on.

    Args:
        folder: the model folder, for the message.
        stored: names of the checkpoint's tensors.

    Raises:
        SetupError: A number is missing, or none.
    """
    found = {name.removeprefix(_LAYERS).partition(".")[0] for name in stored if name.startswith(_LAYERS)}
    if strange := sorted(found - {str(number) for number in range(len(found))}):
        raise SetupError(
            f"The weights in {folder} hold tensors of {_LAYERS}{strange[0]:.40}, and layers for multi-token prediction "
            f"are numbered from 0 on; {len(found)} are there.",
            "Download the model again: files are missing or damaged.",
        )


def mtp_names(stored: Iterable[str], layers: int) -> dict[str, str]:
    """Map the names that the tensors would have in further layers of the model to those in the files.

    Args:
        stored: names of the checkpoint's tensors.
        layers: number of the model's own layers.
    """
    found = {}
    for name in filter(is_mtp, stored):
        module, _, rest = name.removeprefix(_BEGINNING).partition(".")
        if module == "layers":
            index, _, rest = rest.partition(".")
            found[f"model.layers.{layers + int(index)}.{rest}"] = name
        else:
            found[f"model.layers.{layers}.{_AROUND.get(module, module)}.{rest}"] = name
    return found


def mtp_count(names: Iterable[str], layers: int) -> int:
    """Count the layers that `mtp_names` found behind so many of the model's own."""
    return max((int(name.split(".")[2]) + 1 - layers for name in names), default=0)


def with_mtp_layers(spec: DecoderSpec, count: int) -> DecoderSpec:
    """Add so many layers for multi-token prediction to a model's own: each is like its last layer with attention."""
    like = next((layer for layer in reversed(spec.layers) if layer.attends), spec.layers[-1])
    return spec.model_copy(update={"layers": [*spec.layers, *[like] * count]})
