"""The tokenizer of a model folder."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.source import ModelSource


def quiet_transformers() -> None:
    """Keep transformers' progress bars and advice out of our terminals and logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer, with the chat template that the source says.

    Raises:
        SetupError: It cannot be loaded, or is not a fast (tokenizers-based) one, which offsets need.
    """
    from transformers import AutoTokenizer

    quiet_transformers()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, config=_light_config(source), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SetupError(
            f"The tokenizer in {source.folder} could not be loaded: {first_line(error)}.",
            "Copy the tokenizer's files of the same model into the folder.",
        ) from error
    if not tokenizer.is_fast:
        raise SetupError(
            f"The tokenizer in {source.folder} has no tokenizer.json, which exact loss spans need.",
            "Get the model's tokenizer.json.",
        )
    if source.chat_template:
        tokenizer.chat_template = source.chat_template
    return tokenizer


def _light_config(source: ModelSource) -> Any:
    """What AutoTokenizer looks at in a model's config; None: it shall read that itself.

    Making transformers' own config object imports most of transformers and torch's compiler, which takes seconds. Where
    tokenizer_config.json names a class, only plain values are asked for.
    """
    try:
        found = json.loads((source.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        named = isinstance(found["tokenizer_class"], str) and "auto_map" not in found
    except (OSError, ValueError, KeyError, TypeError):
        return None
    plain = {"model_type": None} | source.config | {"_name_or_path": str(source.folder)}
    return SimpleNamespace(**plain) if named else None


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for a paragraph of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
