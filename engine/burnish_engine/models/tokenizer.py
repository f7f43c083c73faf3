"""The tokenizer of a model folder."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.source import ModelSource


def quiet_transformers() -> None:
    """Keep transformers' progress bars and advice out of our terminals and logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer.

    Raises:
        SetupError: It cannot be loaded, or is not a fast (tokenizers-based) one, which offsets need.
    """
    from transformers import AutoTokenizer

    quiet_transformers()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
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
    return tokenizer


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for a paragraph of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
