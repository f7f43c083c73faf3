"""The choices that the search for a memory plan has: save levels, chunks of the feed-forward and of the head."""

from __future__ import annotations

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.advise.predict.level_mixes import MOVING
from burnish_engine.contract.recipe.memory_plan import SaveLevel

_LEAST_TILE = 1024  # smaller tiles leave a GPU idle
_HEAD_DIVIDED = (1, 2, 4, 8, 16)
# "all" has to be pinned by hand: on an H100 it is 0.4 % faster than "rotated" for as much memory again.
_AUTO_GPU: tuple[SaveLevel, ...] = ("rotated", "products", "offloaded", "narrow", "attention", "host", "input")
_AUTO_CPU: tuple[SaveLevel, ...] = ("products", "narrow", "attention")


def allowed_levels(run: FastRun, *, moving: bool) -> tuple[SaveLevel, ...]:
    """List the save levels that the search may use, from the fastest on."""
    allowed = _AUTO_GPU if run.cuda else _AUTO_CPU
    if run.recipe.train.recompute:
        allowed = tuple(level for level in allowed if level in {"attention", "host", "input"})
    if not moving:
        allowed = tuple(level for level in allowed if level not in MOVING)
    if not run.spec.qk_norm:  # the same as "products" there
        allowed = tuple(level for level in allowed if level != "rotated")
    return allowed


def mlp_chunks(tokens: int) -> list[int]:
    """List useful chunks of the feed-forward, tokens, the largest first."""
    sizes = []
    size = _LEAST_TILE
    while size < tokens:
        sizes.append(size)
        size *= 2
    return sizes[::-1]


def head_chunks(supervised_tokens: int, *, cuda: bool) -> list[int]:
    """List useful chunks of the head, tokens, the largest first."""
    divided = _HEAD_DIVIDED if cuda else _HEAD_DIVIDED[:1]
    return list(dict.fromkeys(head_chunk_tokens(supervised_tokens, cuda=cuda, divided=times) for times in divided))
