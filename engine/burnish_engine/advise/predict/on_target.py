"""Predicts a finished file's memory and speed on the device it is made for, and chooses a type. Loads no torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from burnish_engine.advise.facts.gguf_size import predicted_file_bytes
from burnish_engine.advise.facts.shape import (
    embedding_parameters,
    kv_cache_bytes,
    parameters,
    projection_parameters,
)
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, GgufType, TargetSection

GIB = 2**30

GENERATION_SHARE = 0.7
"""Share of the memory's peak rate that token generation reaches: it reads every weight once a token."""

_BANDWIDTH_GB_S: dict[str, float] = {"phone": 40.0, "laptop": 65.0, "desktop": 80.0, "server": 200.0}
"""Typical peak memory rates by JEDEC's transfer rates times bus width: phone between LPDDR4X-4266 and LPDDR5-6400 on
64 bits (34 to 51); laptop and desktop between DDR4-3200 and DDR5-5600 on 128 bits (51 to 90); server with eight
channels of DDR4-3200 (205). A processor is assumed; a graphics card there is faster."""

_BATCH_TOKENS = 512  # llama.cpp's default n_ubatch, for which it reserves fp32 logits
_RUNTIME_BYTES = 150 * 2**20  # code, vocabulary and small buffers of llama.cpp

COMFORTABLE_TOKENS_PER_S = 8.0
"""Generation speed that a file type is chosen for; it is clearly faster than reading."""
READING_TOKENS_PER_S = 5.5
"""Speed of silent reading: 250 words a minute (Brysbaert 2019: 238 for prose, 260 for fiction), 1.3 tokens each."""
SLOWEST_TOKENS_PER_S = 2.5
"""Least generation speed at which a chat is usable."""
_COMFORTABLE_SHARE = 0.8  # share of the usable memory that a file type is chosen for

_BEST_FIRST = tuple(quant for quant, facts in GGUF_TYPES.items() if facts.rough_bits)
_BEST_FIRST_ODD_WIDTHS: tuple[GgufType, ...] = ("Q8_0", "Q5_0", "IQ4_NL")
"""File types for models whose rows do not fill blocks of 256: llama.cpp replaces K types by larger ones there."""
_OTHER_ROUGH_BITS = 5.5

TargetVerdict = Literal["good", "tight", "too_big"]


@dataclass(frozen=True)
class OnTarget:
    """The prediction for one file type of a model on a target."""

    quant: GgufType  # file type
    file_bytes: int  # size of the file
    run_bytes: int  # memory to run it with the target's context
    usable_bytes: int  # memory that the target has for it
    tokens_per_s: float  # predicted generation speed
    verdict: TargetVerdict  # how well it runs there


def usable_bytes(target: TargetSection) -> int:
    """The memory of a target that a model may take, bytes.

    A phone's system ends apps that take about half of the memory; computers keep some for the system and a browser.
    """
    ram = target.ram_gib * GIB
    if target.kind == "phone":
        return int(0.45 * ram)
    reserved = {"laptop": 5 * GIB, "desktop": 6 * GIB, "server": 8 * GIB}[target.kind]
    return int(max(ram - reserved, 0.4 * ram))


def on_target(spec: DecoderSpec, target: TargetSection) -> OnTarget:
    """Choose the file type for a target: the one it asks for, else the finest that runs well.

    Args:
        spec: shape of the model.
        target: target section of the recipe.
    """
    if target.quant != "auto":
        return judge(spec, target.quant, target)
    last = None
    for quant in file_types(spec):
        last = judge(spec, quant, target)
        comfortable = last.run_bytes <= _COMFORTABLE_SHARE * last.usable_bytes
        if comfortable and last.tokens_per_s >= COMFORTABLE_TOKENS_PER_S:
            return last
    assert last is not None
    return last


def file_types(spec: DecoderSpec) -> tuple[GgufType, ...]:
    """List the file types worth considering for a model, finest first."""
    rows = (spec.hidden_size, spec.intermediate_size, spec.num_heads * spec.head_dim)
    return _BEST_FIRST if all(row % 256 == 0 for row in rows) else _BEST_FIRST_ODD_WIDTHS


def judge(spec: DecoderSpec, quant: GgufType, target: TargetSection) -> OnTarget:
    """Predict how one file type runs on a target.

    Raises:
        UsageError: The model's rows do not fit this file type.
    """
    bits = GGUF_TYPES[quant].rough_bits or _OTHER_ROUGH_BITS
    file = _file_bytes(spec.model_dump_json(), quant) or int(parameters(spec) * bits / 8)
    context = min(target.context, spec.max_context)
    run = file + _beside_bytes(spec, context)
    speed = _bytes_per_s(target) / token_bytes(spec, file, context)
    usable = usable_bytes(target)
    verdict: TargetVerdict = "good"
    if run > usable or speed < SLOWEST_TOKENS_PER_S:
        verdict = "too_big"
    elif speed < READING_TOKENS_PER_S:
        verdict = "tight"
    return OnTarget(quant, file, run, usable, speed, verdict)


def largest_file_bytes(spec: DecoderSpec, target: TargetSection) -> int:
    """Return the size of the largest file of a model that a target's memory and speed allow; `judge` for any size."""
    context = min(target.context, spec.max_context)
    readable = _bytes_per_s(target) / SLOWEST_TOKENS_PER_S - kv_cache_bytes(spec, context) / 2
    by_memory = usable_bytes(target) - _beside_bytes(spec, context)
    return max(int(min(by_memory, readable / _read_share(spec))), 0)


def token_bytes(spec: DecoderSpec, file_bytes: int, context: int) -> float:
    """Return the bytes that are read from memory for each generated token, at the middle of a context.

    Args:
        spec: shape of the model.
        file_bytes: size of the file.
        context: length of the conversation, tokens.
    """
    return file_bytes * _read_share(spec) + kv_cache_bytes(spec, context) / 2


def _read_share(spec: DecoderSpec) -> float:
    """Return the share of the weights that a token reads: only those experts of a mixture that it visits."""
    return min(1.0, (projection_parameters(spec) + embedding_parameters(spec)) / parameters(spec))


def _beside_bytes(spec: DecoderSpec, context: int) -> int:
    """Return the memory that a file needs beside itself, bytes."""
    return kv_cache_bytes(spec, context) + _BATCH_TOKENS * spec.vocab_size * 4 + _RUNTIME_BYTES


def _bytes_per_s(target: TargetSection) -> float:
    """Return the rate at which token generation reads a target's memory."""
    return _BANDWIDTH_GB_S[target.kind] * 1e9 * GENERATION_SHARE


@functools.lru_cache(maxsize=1024)
def _file_bytes(spec_json: str, quant: GgufType) -> int | None:
    """Predict the file's size; cached, because ranking a catalog asks again and again at a millisecond each."""
    return predicted_file_bytes(DecoderSpec.model_validate_json(spec_json), quant)
