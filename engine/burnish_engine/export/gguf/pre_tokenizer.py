"""Find, by trying, the llama.cpp pre-tokenizer that splits text as the model's own tokenizer does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import FidelityError, SetupError
from burnish_engine.models.gguf.gguf_runtime import GgufModel

PRE_TOKENIZERS = (
    "llama-bpe", "qwen2", "smollm", "gpt-2", "gpt-4o", "tekken", "starcoder", "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "falcon", "mpt", "refact", "command-r", "stablelm2", "olmo", "dbrx", "smaug-bpe", "poro-chat",
    "chatglm-bpe", "viking", "jais", "codeshell", "bloom", "gpt3-finnish", "exaone", "exaone-moe", "minerva-7b",
    "superbpe", "trillion", "granite-docling", "bailingmoe", "seed-coder", "hunyuan", "hunyuan-dense", "grok-2",
    "afmoe", "minimax-m2", "solar-open", "youtu", "joyai-llm", "qwen35", "lfm2", "kimi-k2", "tiny_aya", "mellum",
    "modern-bert", "jais-2", "granite-embed-multi-97m", "default",
)  # fmt: skip
"""Names that llama.cpp knows (llama-vocab.cpp, load); names that an installed version does not know are skipped."""

PRE_KEY = "tokenizer.ggml.pre"


@dataclass(frozen=True)
class TokenMismatch:
    """A text that two tokenizers split differently."""

    text: str  # text that was split
    ours: list[int]  # token ids of the model's tokenizer
    theirs: list[int]  # token ids of llama.cpp

    def __str__(self) -> str:
        return f"{self.text[:60]!r}: {self.ours[:12]} became {self.theirs[:12]}"


def compare_tokens(
    expected: Sequence[tuple[str, list[int]]], model: GgufModel, most: int | None = None
) -> list[TokenMismatch]:
    """List the texts that llama.cpp splits differently.

    Args:
        expected: texts with the token ids of the model's tokenizer.
        model: open GGUF; the vocabulary is enough.
        most: number of mismatches after which the search stops.
    """
    found: list[TokenMismatch] = []
    for text, ids in expected:
        got = model.tokenize(text)
        if got != ids:
            found.append(TokenMismatch(text, ids, got))
            if most is not None and len(found) >= most:
                break
    return found


def expected_tokens(tokenizer: Any, strings: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Tokenize each text; special tokens in it are recognized and none are added."""
    return [(text, list(tokenizer(text, add_special_tokens=False)["input_ids"])) for text in strings]


def choose_pre_tokenizer(
    vocabulary_file: Path, expected: Sequence[tuple[str, list[int]]], preferred: Sequence[str]
) -> str:
    """Find the first pre-tokenizer with which llama.cpp gives the same ids on every text.

    Args:
        vocabulary_file: GGUF with the byte-BPE vocabulary and no tensors.
        expected: texts with their right token ids.
        preferred: names to try first.

    Raises:
        FidelityError: No pre-tokenizer fits; the message names the texts on which the nearest one differs.
    """
    best: tuple[str, list[TokenMismatch]] | None = None
    for name in dict.fromkeys((*preferred, *PRE_TOKENIZERS)):
        try:
            with GgufModel(vocabulary_file, vocab_only=True, overrides={PRE_KEY: name}) as model:
                found = compare_tokens(expected, model, most=len(best[1]) if best else None)
        except SetupError:
            continue
        if not found:
            return name
        if best is None or len(found) < len(best[1]):
            best = name, found
    if best is None:
        raise FidelityError("llama.cpp cannot read the model's vocabulary at all.", "Please report the model's name.")
    examples = "; ".join(str(mismatch) for mismatch in best[1][:5])
    raise FidelityError(
        f"llama.cpp has no pre-tokenizer that splits text as this model does. The nearest, {best[0]}, differs on "
        f"{len(best[1])} of {len(expected)} texts: {examples}.",
        "A GGUF of this model would misread its prompts; export as safetensors instead.",
    )
