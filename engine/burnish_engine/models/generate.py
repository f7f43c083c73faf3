"""Streamed and batched replies of a transformers (or PEFT) model, and the tokens that end them.

Replies are also made in the middle of training, so a model is left exactly as it was found: modes of every module,
`config.use_cache`, and torch's random numbers (sampling draws from a numpy generator of its own). Loads torch only when
a model generates.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from burnish_engine.contract.errors import UsageError
from burnish_engine.models.sampling import Reply, ReplyStream, Sampling, pick_token

Prompt = Sequence[int] | Sequence[Mapping[str, str]]
"""Token ids, or messages that the tokenizer's chat template renders (transformers renders it in a sandbox)."""

END_OF_TURN_NAMES = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "</s>",
    "<EOT>", "[EOT]", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|return|>", "<|call|>",
)  # fmt: skip
"""Names llama.cpp takes for an end of generation wherever they are tokens (llama-vocab.cpp, special_eog_ids); the torch
path stops at the same ones, so that a reply ends at the same place before and after export."""


def stop_token_ids(tokenizer: Any, *declared: int | Sequence[int] | None) -> list[int]:
    """Every token that ends a reply: the declared ones, the tokenizer's, and known end-of-turn tokens it has.

    Args:
        tokenizer: A transformers tokenizer.
        declared: `eos_token_id` of a generation_config or config, a number or a list.
    """
    found: list[int] = []
    for value in (*declared, tokenizer.eos_token_id):
        found += [value] if isinstance(value, int) else list(value or [])
    added = tokenizer.get_added_vocab()
    for name in END_OF_TURN_NAMES:
        # gpt-oss: <|end|> only ends one channel's message there; <|return|> ends the reply.
        if name in added and not (name == "<|end|>" and "<|return|>" in added):
            found.append(added[name])
    return list(dict.fromkeys(int(value) for value in found))


def model_stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """`stop_token_ids` with what the model's generation_config and config declare."""
    generation = getattr(model, "generation_config", None)
    return stop_token_ids(
        tokenizer, getattr(generation, "eos_token_id", None), getattr(model.config, "eos_token_id", None)
    )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module's mode is what it was.

    `no_grad`, not `inference_mode`: some rope variants cache buffers at their first long input, and buffers made in
    inference mode cannot be used by a later backward pass.
    """
    import torch

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


def prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids of a prompt; messages are rendered with the generation prompt and without a second BOS."""
    if not prompt:
        raise UsageError("The prompt is empty.", "Give at least one message.")
    if isinstance(prompt[0], Mapping):
        if not tokenizer.chat_template:
            raise UsageError(
                "The model's tokenizer has no chat template to render messages with.", "Give token ids instead."
            )
        text = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return [int(token) for token in prompt]  # type: ignore[arg-type]  # the first element said which of the two it is


def generate_stream(model: Any, tokenizer: Any, prompt: Prompt, sampling: Sampling | None = None) -> ReplyStream:
    """Stream one reply with a KV cache.

    Args:
        model: A causal language model of transformers, or a PeftModel around one.
        tokenizer: Its tokenizer.
        prompt: Messages or token ids.
        sampling: How to choose; greedy up to 256 tokens where not given.

    Raises:
        UsageError: The prompt is empty.
    """
    ids = prompt_ids(tokenizer, prompt)
    chosen = sampling or Sampling()
    return ReplyStream(lambda stream: _stream(stream, model, tokenizer, ids, chosen))


def _stream(stream: ReplyStream, model: Any, tokenizer: Any, ids: list[int], sampling: Sampling) -> Iterator[str]:
    import torch

    random = np.random.default_rng(sampling.seed)
    stops = set(model_stop_ids(model, tokenizer))
    decoder = PieceDecoder(tokenizer)
    extra = _last_logits_only(model)
    feed, cache = torch.tensor([ids], device=model.device), None
    for _ in range(sampling.max_tokens):
        # The modes are switched per token: between two pieces the consumer may train the model, or never come back.
        with evaluating(model):
            output = model(input_ids=feed, past_key_values=cache, use_cache=True, **extra)
        cache = output.past_key_values
        token = pick_token(output.logits[0, -1].float().cpu().numpy(), sampling, random)
        if token in stops:
            stream.stopped = True
            break
        stream.tokens += 1
        if piece := decoder.push(token):
            yield piece
        feed = torch.tensor([[token]], device=model.device)
    if piece := decoder.flush():
        yield piece


def generate_replies(
    model: Any, tokenizer: Any, prompts: Sequence[Prompt], max_new_tokens: int, *, batch_size: int = 16
) -> list[Reply]:
    """Greedy replies to many prompts, in their order, several at a time.

    Prompts of similar length share a batch (padded on the left), and finished replies leave it where the model's cache
    can drop rows, so that the time goes into replies that are still growing.

    Args:
        model: A causal language model of transformers, or a PeftModel around one.
        tokenizer: Its tokenizer.
        prompts: Messages or token ids, each.
        max_new_tokens: Longest reply, tokens.
        batch_size: Replies made at the same time.
    """
    Sampling(max_tokens=max_new_tokens)
    ids = [prompt_ids(tokenizer, prompt) for prompt in prompts]
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    replies: dict[int, Reply] = {}
    with evaluating(model):
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            made = _greedy_batch(
                model, [ids[row] for row in rows], set(model_stop_ids(model, tokenizer)), max_new_tokens
            )
            for row, (tokens, stopped) in zip(rows, made, strict=True):
                text = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                replies[row] = Reply(text, stopped, len(tokens))
    return [replies[row] for row in range(len(ids))]


def _greedy_batch(
    model: Any, prompts: list[list[int]], stops: set[int], max_new_tokens: int
) -> list[tuple[list[int], bool]]:
    import torch

    longest = max(len(prompt) for prompt in prompts)
    feed = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    rows, cache, extra = list(range(len(prompts))), None, _last_logits_only(model)
    made: list[list[int]] = [[] for _ in prompts]
    stopped = [False] * len(prompts)
    for _ in range(max_new_tokens):
        output = model(
            input_ids=feed, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, **extra
        )
        cache = output.past_key_values
        chosen = output.logits[:, -1].argmax(-1).tolist()
        going = []
        for place, (row, token) in enumerate(zip(rows, chosen, strict=True)):
            stopped[row] = stopped[row] or token in stops
            if not stopped[row]:
                made[row].append(token)
                going.append(place)
        if not going:
            break
        if len(going) < len(rows) and _can_drop_rows(cache):
            kept = torch.tensor(going, device=model.device)
            cache.batch_select_indices(kept)
            mask, positions = mask[kept], positions[kept]
            rows, chosen = [rows[place] for place in going], [chosen[place] for place in going]
        feed = torch.tensor([[token] for token in chosen], device=model.device)
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)
        positions = positions[:, -1:] + 1
    return list(zip(made, stopped, strict=True))


def _can_drop_rows(cache: Any) -> bool:
    """Whether a cache can forget rows of its batch.

    Layers with convolution or recurrent states (LFM2, Mamba hybrids) cannot: they lack the method, or inherit one that
    drops rows of their keys and values only. Their finished rows are fed on and ignored.
    """
    layers = getattr(cache, "layers", None) or []
    return bool(layers) and all(
        hasattr(layer, "batch_select_indices") and not hasattr(layer, "conv_states") for layer in layers
    )


def _last_logits_only(model: Any) -> dict[str, int]:
    """The argument that spares the logits of a prompt's other positions, where the model's class knows it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}


class PieceDecoder:
    """Text from tokens one at a time: a piece comes out once its characters are whole.

    A token may end inside a UTF-8 character, and some decoders treat a first token differently, so each piece is the
    difference between decoding a short window with and without the newest token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._window = 0
        self._done = 0

    def push(self, token: int) -> str:
        """Add a token; the text that became whole, possibly empty."""
        self._ids.append(token)
        text = self._decode(self._ids[self._window :])
        if text.endswith("\ufffd"):
            return ""
        return self._take(text)

    def flush(self) -> str:
        """What is left at the end, with replacement characters where a character never became whole."""
        return self._take(self._decode(self._ids[self._window :]))

    def _take(self, text: str) -> str:
        piece = text[len(self._decode(self._ids[self._window : self._done])) :]
        self._window, self._done = self._done, len(self._ids)
        return piece

    def _decode(self, ids: Iterable[int]) -> str:
        decoded: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return decoded
