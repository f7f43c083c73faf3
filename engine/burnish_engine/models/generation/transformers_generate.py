"""Generate text with a transformers (or PEFT) model, with transformers' own caches.

The model is left exactly as it was found: modes of every module, and `config.use_cache`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override

from burnish_engine.models.generation.step_by_step import StepGenerator


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch to evaluation mode without gradients inside the block; restore every module's mode afterwards.

    `no_grad`, not `inference_mode`: some rope variants cache buffers at their first long input, and buffers made in
    inference mode cannot be used by a later backward pass.
    """
    modes = [(module, module.training) for module in model.modules()]
    if any(training for _, training in modes):
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


@dataclass
class TransformersReplies:
    """The state of replies that grow together, prompts padded on the left.

    Attributes:
        cache: cache of the model.
        mask: mask [B, tokens so far], 0 in padding; None for a single reply, which has none.
        positions: position [B, 1] of the newest token; None for a single reply.
    """

    cache: Any
    mask: torch.Tensor | None
    positions: torch.Tensor | None


class TransformersGenerator(StepGenerator):
    """A generator on a causal language model of transformers, or a PeftModel around one.

    Args:
        model: causal language model.
        exact: whether each reply is made alone, so that it has the same bits whatever others are asked for.
    """

    def __init__(self, model: Any, *, exact: bool = False) -> None:
        self._model, self.exact = model, exact
        self._is_adapted = True
        self._options: dict[str, Any] = {"use_cache": True, **_last_logits_only(model)}

    @property
    @override
    def ends(self) -> list[int | Sequence[int] | None]:
        configs = (getattr(self._model, "generation_config", None), self._model.config)
        return [getattr(config, "eos_token_id", None) for config in configs]

    def use_adapter(self, use: bool) -> None:
        """Switch the adapter on or off for the replies that follow. Not allowed while a reply is being made."""
        tuner = self._model.base_model
        (tuner.enable_adapter_layers if use else tuner.disable_adapter_layers)()
        self._is_adapted = use

    @contextmanager
    @override
    def without_adapter(self) -> Iterator[None]:
        was_adapted = self._is_adapted
        if was_adapted:
            self.use_adapter(use=False)
        try:
            yield
        finally:
            if was_adapted:
                self.use_adapter(use=True)

    @override
    def inference(self) -> AbstractContextManager[None]:
        return evaluating(self._model)

    @override
    def start(self, prompts: Sequence[Sequence[int]], reserve: int) -> tuple[TransformersReplies, torch.Tensor]:
        device, longest = self._model.device, max(len(prompt) for prompt in prompts)
        feed = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=device)
        replies = TransformersReplies(None, None, None)
        if len(prompts) > 1:
            replies.mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
            replies.positions = (replies.mask.cumsum(-1) - 1).clamp(min=0)
        return replies, self._forward(replies, feed)

    @override
    def advance(self, state: TransformersReplies, tokens: Sequence[int]) -> torch.Tensor:
        feed = torch.tensor(list(tokens), device=self._model.device)[:, None]
        if state.mask is not None and state.positions is not None:
            state.mask = torch.cat([state.mask, state.mask.new_ones(len(feed), 1)], dim=-1)
            state.positions = state.positions + 1
        return self._forward(state, feed)

    @override
    def keep(self, state: TransformersReplies, rows: Sequence[int]) -> bool:
        if not _can_drop_rows(state.cache):
            return False
        kept = torch.tensor(list(rows), device=self._model.device)
        state.cache.batch_select_indices(kept)
        if state.mask is not None and state.positions is not None:
            state.mask, state.positions = state.mask[kept], state.positions[kept]
        return True

    def _forward(self, replies: TransformersReplies, feed: torch.Tensor) -> torch.Tensor:
        where = {} if replies.mask is None else {"attention_mask": replies.mask, "position_ids": replies.positions}
        output = self._model(input_ids=feed, past_key_values=replies.cache, **where, **self._options)
        replies.cache = output.past_key_values
        if replies.positions is not None:
            replies.positions = replies.positions[:, -1:]
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits


def _can_drop_rows(cache: Any) -> bool:
    """Return whether a cache can drop rows of its batch.

    Layers with convolution or recurrent states (LFM2, Mamba hybrids) cannot: they lack the method, or inherit one that
    drops rows of their keys and values only. Their finished rows are fed on and ignored.
    """
    layers = getattr(cache, "layers", None) or []
    return bool(layers) and all(
        hasattr(layer, "batch_select_indices") and not hasattr(layer, "conv_states") for layer in layers
    )


def _last_logits_only(model: Any) -> dict[str, int]:
    """Return the argument that skips the logits of a prompt's other positions, where the model's class has it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}
