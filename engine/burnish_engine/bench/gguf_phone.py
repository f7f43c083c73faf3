"""Predict how a GGUF file runs on a phone: whether it fits, the longest context, and whether its type suits ARM.

Nothing here is measured on a phone; `burnish bench gguf --phone` shows such measurements. Sources:
- Q4_0, IQ4_NL and, since llama.cpp PR #18096, Q8_0 are rearranged at load for ARM's dot product and matrix instructions
  (ggml-cpu/repack.cpp); on an M4 Max that took Q8_0 from 304 to 1,085 prompt tokens/s. K types are read as they are,
  slower at prompts.
- Android ends apps that take about half of the memory (45 % is counted here), as `burnish models --target phone` does.
- LPDDR4X-4266 to LPDDR5-6400 on 64 bits move 34 to 51 GB/s (JEDEC); a token reads every weight once, at 70 % of that.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader

GIB = 2**30
RAMS_GIB = (4, 6, 8)
"""Memory of phones from cheap to usual, GiB."""
USABLE_SHARE = 0.45
_BYTES_S = 40e9 * 0.7
_RUNTIME_BYTES = 150 * 2**20
_BATCH = 512  # llama.cpp's default n_ubatch, for which it reserves fp32 logits
_SHORTEST, _LONGEST = 256, 131_072
SUITS_ARM = ("Q4_0", "IQ4_NL", "Q8_0")


@dataclass(frozen=True)
class OnPhone:
    """Prediction for one file on a phone of some memory.

    Attributes:
        ram_gib: memory of the phone, GiB.
        context: longest context that fits, in tokens, a power of two or the model's own; 0: the file does not fit.
        tokens_per_s: upper bound of generated tokens a second by memory speed.
    """

    ram_gib: int
    context: int
    tokens_per_s: float


def on_phones(header: GgufHeader, file_bytes: int) -> list[OnPhone]:
    """Predict a file on phones of 4, 6 and 8 GiB.

    Args:
        header: header of the file.
        file_bytes: size of the file.
    """
    return [OnPhone(ram, _context(header, file_bytes, ram), _BYTES_S / file_bytes) for ram in RAMS_GIB]


def type_text(kind: str) -> str:
    """Describe whether a file type suits phones."""
    if kind in SUITS_ARM:
        return f"{kind} is rearranged for ARM at load: fast prompts"
    return f"{kind or 'this type'} is not rearranged for ARM: prompts are slower than with Q4_0 or IQ4_NL"


def cache_bytes(header: GgufHeader, context: int) -> int:
    """Compute the bytes of a context's keys and values in 16 bits; layers with a window count whole."""
    per_layer = header.metadata.get(f"{header.architecture}.attention.head_count_kv")
    heads = sum(per_layer) if isinstance(per_layer, tuple) else 0
    heads = heads or header.number("block_count") * header.number("attention.head_count_kv", 1)
    head = header.number("attention.key_length") or header.number("embedding_length") // max(
        header.number("attention.head_count", 1), 1
    )
    value = header.number("attention.value_length") or head
    return 2 * context * heads * (head + value)


def _context(header: GgufHeader, file_bytes: int, ram_gib: int) -> int:
    vocabulary = header.number("vocab_size") or int(header.metadata.get("tokenizer.ggml.tokens", 0))
    free = USABLE_SHARE * ram_gib * GIB - file_bytes - _RUNTIME_BYTES - 4 * _BATCH * vocabulary
    trained, best, context = header.number("context_length", _LONGEST), 0, _SHORTEST
    while context <= min(trained, _LONGEST):
        if cache_bytes(header, context) <= free:
            best = context
        context *= 2
    return trained if best and trained <= _LONGEST and cache_bytes(header, trained) <= free else best
