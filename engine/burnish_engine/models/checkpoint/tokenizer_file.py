"""Read a model's tokenizer.json without its vocabulary's merges, and check that its ids fit the model.

Loads neither torch nor transformers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.source import ModelSource

TOKENIZER_FILE = "tokenizer.json"
_ENDS = ("bos_token", "eos_token", "unk_token")


@dataclass(frozen=True)
class Token:
    """A token whose id is beyond the model's embedding.

    Attributes:
        id: number of the token.
        text: text of the token.
        special: whether it is an added token that no ordinary text yields.
    """

    id: int
    text: str
    special: bool


@dataclass(frozen=True)
class TokenizerFile:
    """The parts of a tokenizer.json that checks need.

    Attributes:
        rules: the file with an empty vocabulary, as JSON: normalizer, pre-tokenizer, decoder and the model's switches.
            Empty where the model is no BPE.
        last: token of the largest id that is no added token.
        added: the added tokens.
    """

    rules: str
    last: Token | None
    added: tuple[Token, ...]


def read_tokenizer_file(folder: Path) -> TokenizerFile | None:
    """Read the tokenizer.json of a folder; None where there is none. The result is cached until the file changes.

    Raises:
        SetupError: The file cannot be read, or is damaged.
    """
    path = folder / TOKENIZER_FILE
    try:
        state = path.stat()
    except OSError:
        return None
    return _read(path, state.st_size, state.st_mtime_ns)


def check_token_ids(source: ModelSource) -> None:
    """Compare the ids of a model's tokenizer.json with the rows of its embedding.

    Raises:
        SetupError: The tokenizer can yield an id that the model has no row for, or its file is damaged.
    """
    found = read_tokenizer_file(source.folder)
    if found is not None and source.rows:
        refuse_beyond(source, [*([found.last] if found.last else []), *found.added])


def refuse_beyond(source: ModelSource, tokens: Iterable[Token]) -> list[Token]:
    """Refuse tokens that a text can yield and the model has no embedding for.

    Special tokens that neither the chat template writes nor every text begins or ends with are for other uses, such as
    the place of an image: Gemma 3 1B has one beyond its embedding.

    Args:
        source: model with the embedding.
        tokens: tokens of its tokenizer, with whatever ids.

    Returns:
        The tokens beyond the embedding that nothing yields.

    Raises:
        SetupError: There is one that something yields. The message names its id and the rows.
    """
    beyond = sorted((token for token in tokens if token.id >= source.rows), key=lambda token: token.id)
    if not beyond:
        return []
    written = f"{source.chat_template}\n{_settings_text(source.folder)}"
    yielded = [token for token in beyond if not token.special or token.text in written]
    if yielded:
        first, last = yielded[0], yielded[-1]
        raise SetupError(
            f"The tokenizer in {source.folder} yields ids up to {last.id} (first {first.text[:40]!r} = {first.id}), "
            f"and the model's embedding has {source.rows} rows.",
            "Use the tokenizer that belongs to the model, or resize the model's embedding.",
        )
    return beyond


def _settings_text(folder: Path) -> str:
    """Return the chat template and the tokens that texts begin or end with, joined into one text."""
    texts = []
    for name in ("chat_template.jinja", "chat_template.json"):
        with suppress(OSError, ValueError):
            texts.append(read_plain(folder / name))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        with suppress(OSError, ValueError, AttributeError):
            settings = json.loads(read_plain(folder / name))
            texts.append(str(settings.get("chat_template", "")))
            texts += [_content(settings.get(key)) for key in _ENDS]
    return "\n".join(texts)


def _content(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


@functools.lru_cache(maxsize=8)
def _read(path: Path, _size: int, _changed: int) -> TokenizerFile:
    try:
        parsed = json.loads(read_plain(path))
        model, added = parsed["model"], parsed.get("added_tokens") or []
        tokens = tuple(Token(int(one["id"]), str(one["content"]), bool(one.get("special"))) for one in added)
        ids = _ids(model["vocab"], {token.text for token in tokens})
        text, number = max(ids, key=lambda pair: pair[1], default=("", -1))
        rules = {**parsed, "model": {**model, "vocab": {}, "merges": []}, "added_tokens": []}
        is_bpe = model.get("type", "BPE") == "BPE" and isinstance(model["vocab"], dict)
        last = Token(number, text, special=False) if number >= 0 else None
        return TokenizerFile(json.dumps(rules) if is_bpe else "", last, tokens)
    except OSError as error:
        raise SetupError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the file's permissions and the disk."
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        what = str(error) or type(error).__name__
        raise SetupError(f"{path} is damaged: {what[:200]}.", "Copy the file of the same model again.") from error


def _ids(vocabulary: Any, added: set[str]) -> list[tuple[str, int]]:
    """Yield text and id of every token of the vocabulary that is not an added token."""
    if isinstance(vocabulary, dict):
        return [(text, int(number)) for text, number in vocabulary.items() if text not in added]
    return [(str(entry[0]), number) for number, entry in enumerate(vocabulary) if entry[0] not in added]
