"""Make the tokenizer's files of a model folder from a GGUF's vocabulary. Loads neither torch nor transformers.

Two kinds exist among the architectures that are read: byte-level BPE (`gpt2`) and SentencePiece's (`llama`), whose
merges follow from its scores. Token types are those of `gguf.TokenType`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader

TOKEN_ARRAYS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges", "scores"))
"""Keys of the vocabulary's arrays."""
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # gguf.TokenType
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS: dict[str, tuple[str, ...]] = {
    "llama-bpe": (_WORDS % r"\p{N}{1,3}",),
    "qwen2": (_WORDS % r"\p{N}",),
    "tekken": (_TEKKEN,),
    "smollm": (r"\p{N}",),
    "gpt-2": (),
    "default": (
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ),
}
"""Patterns by which each pre-tokenizer splits text before merging, one after the other (llama-vocab.cpp)."""
_THEN_USUAL = {"smollm", "gpt-2"}
"""Pre-tokenizers that split by GPT-2's own pattern last."""
_WHOLE_WORDS = {"llama-bpe", "tekken"}
"""Pre-tokenizers with which a word that is a token is never merged from parts (llama-vocab.cpp, `ignore_merges`)."""
_COMPOSED = {"qwen2"}
"""Pre-tokenizers of models whose own tokenizers compose characters first (NFC), which llama.cpp leaves out."""


def tokenizer_files(path: Path, header: GgufHeader) -> dict[str, str]:
    """Return tokenizer.json, tokenizer_config.json and, where there is one, the chat template, by name.

    Args:
        path: the file, for messages.
        header: header of the file, with the arrays of `TOKEN_ARRAYS`.

    Raises:
        UsageError: The vocabulary is of a kind, or splits text in a way, that is not known here.
        SetupError: The vocabulary is damaged.
    """
    data = header.metadata
    tokens, types = data.get("tokenizer.ggml.tokens"), data.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, tuple) or not isinstance(types, tuple) or len(tokens) != len(types):
        raise SetupError(f"{path} has no vocabulary with types of its tokens.", "Download the file again.")
    kind = data.get("tokenizer.ggml.model")
    if kind == "gpt2":
        parsed = _byte_level(path, data)
    elif kind == "llama":
        parsed = _sentencepiece(data)
    else:
        raise UsageError(
            f"{path.name} has a vocabulary of the kind {kind!r}, which Burnish does not read.",
            "Fetch the model's safetensors (burnish models fetch OWNER/NAME) and train from these.",
        )
    parsed["added_tokens"] = [
        {
            "id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": own != _USER_DEFINED,
        }
        for number, (text, own) in enumerate(zip(tokens, types, strict=True))
        if own in {_CONTROL, _USER_DEFINED, _UNKNOWN}
    ]  # fmt: skip
    if data.get("tokenizer.ggml.add_bos_token", kind == "llama") and (bos := _token(data, "bos")) is not None:
        parsed["post_processor"] = _begins_with(*bos)
    files = {
        "tokenizer.json": json.dumps({"version": "1.0", **parsed}, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(_settings(header), ensure_ascii=False, indent=2),
    }
    if isinstance(template := data.get("tokenizer.chat_template"), str):
        files["chat_template.jinja"] = template
    return files


def _vocabulary(data: dict[str, Any]) -> dict[str, int]:
    """Return the number of each token that a text can yield."""
    types = data["tokenizer.ggml.token_type"]
    return {text: number for number, text in enumerate(data["tokenizer.ggml.tokens"]) if types[number] != _UNUSED}


def _byte_level(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    name, merges = data.get("tokenizer.ggml.pre"), data.get("tokenizer.ggml.merges")
    if name not in _PATTERNS:
        raise UsageError(
            f"{path.name} splits text by the rules of {name!r}, which Burnish does not know "
            f"(it knows {', '.join(_PATTERNS)}).",
            "Fetch the model's safetensors (burnish models fetch OWNER/NAME) and train from these.",
        )
    if not isinstance(merges, tuple):
        raise SetupError(f"{path} has a vocabulary without merges.", "Download the file again.")
    steps = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False} for one in _PATTERNS[name]
    ]
    as_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": name in _THEN_USUAL}
    return {
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "NFC"} if name in _COMPOSED else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, as_bytes]},
        "post_processor": None,
        "decoder": {**as_bytes, "use_regex": True},
        "model": _bpe(_vocabulary(data), [pair.split(" ", 1) for pair in merges], ignore_merges=name in _WHOLE_WORDS),
    }


def _sentencepiece(data: dict[str, Any]) -> dict[str, Any]:
    prefix = bool(data.get("tokenizer.ggml.add_space_prefix", True))
    normalizers: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        normalizers.insert(0, {"type": "Prepend", "prepend": "▁"})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    vocabulary = _vocabulary(data)
    unknown = _token(data, "unknown")
    model = _bpe(vocabulary, _merges(vocabulary, data.get("tokenizer.ggml.scores") or ()), ignore_merges=False)
    model |= {"unk_token": unknown[0] if unknown else None, "fuse_unk": True, "byte_fallback": True}
    return {
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


def _merges(vocabulary: dict[str, int], scores: tuple[float, ...]) -> list[list[str]]:
    """List the pairs that make a token, of the highest score first, as SentencePiece merges them."""
    found = []
    for text, number in vocabulary.items():
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        own = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        own.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        found += [(-scores[number] if number < len(scores) else 0.0, number, pair) for pair in own]
    return [list(pair) for _, _, pair in sorted(found, key=lambda one: one[:2])]


def _bpe(vocabulary: dict[str, int], merges: list[list[str]], *, ignore_merges: bool) -> dict[str, Any]:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
        "vocab": vocabulary, "merges": merges,
    }  # fmt: skip


def _begins_with(text: str, number: int) -> dict[str, Any]:
    special = {"SpecialToken": {"id": text, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": place}} for place, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, {"SpecialToken": {"id": text, "type_id": 1}}, second],
        "special_tokens": {text: {"id": text, "ids": [number], "tokens": [text]}},
    }


def _token(data: dict[str, Any], name: str) -> tuple[str, int] | None:
    """Return text and number of a special token; None where the file names none."""
    number, tokens = data.get(f"tokenizer.ggml.{name}_token_id"), data["tokenizer.ggml.tokens"]
    return (tokens[number], number) if isinstance(number, int) and 0 <= number < len(tokens) else None


def _settings(header: GgufHeader) -> dict[str, Any]:
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {key: _token(header.metadata, name) for key, name in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": header.number("context_length", 2048),
        **{key: token[0] for key, token in special.items() if token is not None},
    }
