"""What a GGUF file would take on a phone: does it fit, with how long a context, and does its type suit ARM?

Nothing here is measured on a phone; `burnish bench gguf --phone` shows what was. Sources:
- Q4_0, IQ4_NL and, since llama.cpp PR #18096, Q8_0 are rearranged at load for ARM's dot product and matrix instructions
  (ggml-cpu/repack.cpp); on an M4 Max that took Q8_0 from 304 to 1,085 prompt tokens/s. K types are read as they are,
  slower at prompts.
- Android ends apps that take about half of the memory (45 % is counted here), as `burnish models --target phone` does.
- LPDDR4X-4266 to LPDDR5-6400 on 64 bits move 34 to 51 GB/s (JEDEC); a token reads every weight once, at 70 % of that.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.export.gguf.header import GgufHeader

GIB = 2**30
RAMS_GIB = (4, 6, 8)
"""Phones from cheap to usual, GiB of memory."""
USABLE_SHARE = 0.45
_BYTES_S = 40e9 * 0.7
_RUNTIME_BYTES = 150 * 2**20
_BATCH = 512  # llama.cpp's default n_ubatch, for which it reserves fp32 logits
_SHORTEST, _LONGEST = 256, 131_072
SUITS_ARM = ("Q4_0", "IQ4_NL", "Q8_0")


@dataclass(frozen=True)
class OnPhone:
    """One file on a phone of some memory.

    Attributes:
        ram_gib: The phone's memory.
        context: Longest context that fits, tokens, a power of two or what the model was made for; 0: it does not fit.
        tokens_per_s: Most tokens generated a second by memory speed.
    """

    ram_gib: int
    context: int
    tokens_per_s: float


def on_phones(header: GgufHeader, file_bytes: int) -> list[OnPhone]:
    """The file on phones of 4, 6 and 8 GiB.

    Args:
        header: The file's.
        file_bytes: Its size.
    """
    return [OnPhone(ram, _context(header, file_bytes, ram), _BYTES_S / file_bytes) for ram in RAMS_GIB]


def type_words(kind: str) -> str:
    """Whether a file type suits phones, in words."""
    if kind in SUITS_ARM:
        return f"{kind} is rearranged for ARM at load: fast prompts"
    return f"{kind or 'this type'} is not rearranged for ARM: prompts are slower than with Q4_0 or IQ4_NL"


def cache_bytes(header: GgufHeader, context: int) -> int:
    """Keys and values of a context in 16 bits, bytes; layers with a window count whole."""
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
