"""Convert a Hugging Face tokenizer to the vocabulary that llama.cpp reads.

Two kinds exist among the families known here: byte-level BPE (`gpt2`) and SentencePiece-style BPE with byte fallback
(`llama`). Token types are those of `gguf.TokenType`. `pre_tokenizer.py` tests whether llama.cpp then splits text the
same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish_engine.chat.prompt import render, tokenizer_template
from burnish_engine.contract.errors import UsageError
from burnish_engine.data.templates.template import ChatTemplate, adds_bos
from burnish_engine.models.generation.generate import END_OF_TURN_NAMES, stop_token_ids

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # gguf.TokenType
SENTENCEPIECE = "llama"
"""GGUF's name of a vocabulary in SentencePiece's style."""
_MARK = "Zq7Xv"  # a word that no template contains


@dataclass(frozen=True)
class Vocabulary:
    """Content of a GGUF's tokenizer keys."""

    model: str  # kind of vocabulary, `gpt2`, `llama`, or llama.cpp's own for some that merge like `llama`
    tokens: list[str]  # text of every token, as many as the embedding has rows
    types: list[int]  # type of every token
    merges: list[str] = field(default_factory=list)  # byte-BPE merges as "a b", in order; empty for `llama`
    scores: list[float] = field(default_factory=list)  # score of every token for `llama`, else empty
    special: dict[str, int] = field(default_factory=dict)  # token id of each key such as `eos_token_id`
    add_bos: bool = False  # whether programs put BOS before a text
    add_space_prefix: bool = False
    """Whether, for `llama`, a text gets a space in front, at its start and after special tokens."""
    chat_template: str = ""  # Jinja template that renders chats
    swallows_space: bool = False
    """Whether, for `llama`, special tokens swallow the white space after them, as Phi-3's do."""


def read_vocabulary(
    tokenizer: Any, rows: int, declared_stops: Sequence[int] = (), *, merges_as: str = ""
) -> Vocabulary:
    """Convert a fast tokenizer to a vocabulary.

    Args:
        tokenizer: transformers tokenizer backed by `tokenizers`.
        rows: number of rows of the embedding; tokens beyond the tokenizer's are padded as unused.
        declared_stops: ids of the tokens that the model's generation_config declares to end a reply.
        merges_as: same as in `GgufRules`.

    Raises:
        UsageError: The kind of tokenizer cannot be written, or it has more tokens than the embedding has rows.
    """
    parsed = json.loads(tokenizer.backend_tokenizer.to_str())
    kind = _kind(parsed)
    tokens, types = _tokens(parsed, rows, kind)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in parsed["model"]["merges"]]
    template = tokenizer_template(tokenizer)
    return Vocabulary(
        model=merges_as or kind if kind == SENTENCEPIECE else kind,
        tokens=tokens,
        types=types,
        merges=merges if kind == "gpt2" or merges_as else [],
        scores=_scores(tokens, merges) if kind == SENTENCEPIECE else [],
        special=_special(tokenizer, template, declared_stops),
        add_bos=_adds_bos(tokenizer, template),
        add_space_prefix=kind == SENTENCEPIECE and _spaced(tokenizer, "a") and not before_texts(tokenizer),
        chat_template=template.source,
        swallows_space=kind == SENTENCEPIECE and any(token.get("rstrip") for token in parsed["added_tokens"]),
    )


def _kind(parsed: Mapping[str, Any]) -> str:
    model = parsed["model"]
    # byte_fallback alone is not enough: without byte tokens it never applies, and llama.cpp aborts.
    if model.get("type") == "BPE" and model.get("byte_fallback") and any(map(_is_byte, model["vocab"])):
        return SENTENCEPIECE
    if model.get("type") == "BPE" and "ByteLevel" in json.dumps([parsed.get("pre_tokenizer"), parsed.get("decoder")]):
        return "gpt2"
    raise UsageError(
        f"The model's tokenizer is of the kind {model.get('type')}, which cannot be written to a GGUF yet.",
        "Export as safetensors instead.",
    )


def _tokens(parsed: Mapping[str, Any], rows: int, kind: str) -> tuple[list[str], list[int]]:
    texts: dict[int, str] = {token: text for text, token in parsed["model"]["vocab"].items()}
    types = dict.fromkeys(texts, NORMAL)
    if kind == SENTENCEPIECE:
        types |= {token: BYTE for token, text in texts.items() if _is_byte(text)}
        types |= {token: UNKNOWN for token, text in texts.items() if text == parsed["model"].get("unk_token")}
    for added in parsed["added_tokens"]:
        texts[added["id"]] = added["content"]
        if types.get(added["id"]) != UNKNOWN:
            types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    last = max(texts)
    if last >= rows:
        raise UsageError(
            f"The tokenizer has {last + 1} tokens and the model's embedding only {rows} rows.",
            "Use the tokenizer that belongs to the model, or resize its embedding.",
        )
    padded = [texts.get(token, f"[PAD{token}]") for token in range(rows)]
    return padded, [types.get(token, UNUSED) for token in range(rows)]


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")  # <0x0A>


def _scores(tokens: list[str], merges: list[str]) -> list[float]:
    """Compute SentencePiece scores that make llama.cpp merge in the list's order: earlier merges score higher."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault(pair.replace(" ", "", 1), rank)
    return [-float(ranks[token]) if token in ranks else -1e6 for token in tokens]


def _special(tokenizer: Any, template: ChatTemplate, declared_stops: Sequence[int]) -> dict[str, int]:
    end = turn_end(tokenizer, template)
    found = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": end if end is not None else tokenizer.eos_token_id,
        "unknown_token_id": tokenizer.unk_token_id,
        "padding_token_id": tokenizer.pad_token_id,
    }
    # Programs detect further end tokens by name only; the others get the two keys that also end a generation.
    named = {token for name, token in tokenizer.get_added_vocab().items() if name in END_OF_TURN_NAMES}
    known = {found["eos_token_id"], *named}
    stops = stop_token_ids(tokenizer, declared_stops)
    others = [stop for stop in stops if stop not in known and 0 <= stop < len(tokenizer)]
    found |= dict(zip(("eot_token_id", "eom_token_id"), others, strict=False))
    return {key: int(token) for key, token in found.items() if token is not None}


def before_texts(tokenizer: Any) -> str:
    """Special token after which texts are compared with llama.cpp; empty: at the start of the text.

    Some tokenizers (Mistral 7B v0.3: Metaspace that prepends "first") put a space before the first text but none after
    a special token. llama.cpp does both or neither. A chat begins with a special token, so the behavior after one is
    kept.
    """
    special = tokenizer.bos_token or next(iter(tokenizer.get_added_vocab()), "")
    return special if special and _spaced(tokenizer, "a") and not _spaced(tokenizer, f"{special}a") else ""


def _spaced(tokenizer: Any, text: str) -> bool:
    """Whether the tokenizer puts a space before the text's last letter."""
    return "▁" in "".join(tokenizer.tokenize(text)[-2:])


def turn_end(tokenizer: Any, template: ChatTemplate) -> int | None:
    """Special token with which the template ends an assistant's turn; None where there is none.

    A fine-tuned model stops with this token, whatever the tokenizer calls its EOS (Llama 3's base says
    `<|end_of_text|>`, its template ends turns with `<|eot_id|>`).
    """
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _MARK}]
    text = _render(template, turns, generation_prompt=False)
    ids = tokenizer(text.rpartition(_MARK)[2].lstrip(), add_special_tokens=False)["input_ids"]
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    return ids[0] if ids and ids[0] in special else None


def _adds_bos(tokenizer: Any, template: ChatTemplate) -> bool:
    """Whether programs must put BOS first: where the tokenizer does, unless chats are rendered without one.

    Programs that render the template themselves drop the second BOS; programs with a template of their own (Ollama)
    need the first.
    """
    chat = _render(template, [{"role": "user", "content": "a"}], generation_prompt=True)
    return adds_bos(tokenizer) and (not chat or chat.startswith(tokenizer.bos_token))


def _render(template: ChatTemplate, messages: list[dict[str, str]], *, generation_prompt: bool) -> str:
    try:
        return render(template, messages, generation_prompt=generation_prompt)
    except UsageError:  # the template refuses this conversation
        return ""
