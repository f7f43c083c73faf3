"""Load the tokenizer of a model folder."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer_file import Token, check_token_ids, read_tokenizer_file, refuse_beyond


def quiet_transformers() -> None:
    """Keep transformers' progress bars and advice out of our terminals and logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_tokenizer(source: ModelSource) -> Any:
    """Load the model's fast tokenizer, with the chat template of the source.

    It splits text as the folder's tokenizer.json says, and yields no id that the model has no embedding for.

    Raises:
        SetupError: The tokenizer cannot be loaded, is not a fast (tokenizers-based) one, which offsets need, or belongs
            to another model.
    """
    with IMPORT_LOCK:
        from transformers import AutoTokenizer

    quiet_transformers()
    check_token_ids(source)  # as plans do: a file whose numbers have gaps is loaded with others
    file = read_tokenizer_file(source.folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, config=_light_config(source), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers reads foreign files, which can end in errors of any kind
        raise SetupError(
            f"The tokenizer in {source.folder} could not be loaded: {first_line(error)}.",
            "Copy the tokenizer's files of the same model into the folder.",
        ) from error
    if not tokenizer.is_fast:
        raise SetupError(
            f"The tokenizer in {source.folder} has no tokenizer.json, which exact loss spans need.",
            "Get the model's tokenizer.json.",
        )
    if file is not None and file.rules:
        _follow(tokenizer.backend_tokenizer, file.rules)
    _keep_within(tokenizer, source)
    if source.chat_template:
        tokenizer.chat_template = source.chat_template
    return tokenizer


def _follow(backend: Any, rules: str) -> None:
    """Make a tokenizer split text by the rules of its own file.

    WORKAROUND: transformers 5 builds some tokenizers anew from vocabulary and merges, by its class's rules rather than
    by the file's: LlamaTokenizer reads " Hello" of TinyLlama and Llama 2 as one token instead of two
    (tokenization_llama.py). It can go once transformers takes normalizer and pre-tokenizer from tokenizer.json.
    """
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(rules)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(backend, part, getattr(own, part))
    for switch in ("byte_fallback", "fuse_unk", "ignore_merges", "unk_token"):
        if hasattr(backend.model, switch):
            setattr(backend.model, switch, getattr(own.model, switch))


def _keep_within(tokenizer: Any, source: ModelSource) -> None:
    """Refuse a tokenizer with ids beyond the model's embedding; take out special tokens beyond it that nothing yields.

    Text that spells such a token is then read as plain text, as llama.cpp reads it.
    """
    backend = tokenizer.backend_tokenizer
    added = backend.get_added_tokens_decoder()
    if not source.rows or max(backend.get_vocab_size(), max(added, default=-1) + 1) <= source.rows:
        return
    special = {number for number, token in added.items() if token.special}
    vocabulary = backend.get_vocab(with_added_tokens=True)
    unused = refuse_beyond(source, [Token(number, text, number in special) for text, number in vocabulary.items()])
    gone = {token.id for token in unused}
    if not gone:
        return
    from tokenizers import Tokenizer

    parsed = json.loads(backend.to_str())
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if token["id"] not in gone]
    vocabulary = parsed["model"]["vocab"]
    if isinstance(vocabulary, dict):
        parsed["model"]["vocab"] = {text: number for text, number in vocabulary.items() if number not in gone}
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(parsed))


def _light_config(source: ModelSource) -> Any:
    """Return the config values that AutoTokenizer looks at; None: AutoTokenizer must read the config itself.

    Making transformers' own config object imports most of transformers and torch's compiler, which takes seconds. Where
    tokenizer_config.json names a class, only plain values are asked for.
    """
    try:
        found = json.loads(read_plain(source.folder / "tokenizer_config.json"))
        named = isinstance(found["tokenizer_class"], str) and "auto_map" not in found
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    plain = {"model_type": None} | source.config | {"_name_or_path": str(source.folder)}
    return SimpleNamespace(**plain) if named else None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, to quote in a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
