"""Stream or batch replies of any model that is a `TextGenerator`, and find the tokens that end them.

Replies are also made in the middle of training, so a model is left exactly as it was found, and so are torch's random
numbers (sampling draws from a numpy generator of its own). Loads torch only when a model generates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.models.generation.sampling import GeneratedReply, ReplyStream, Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest, TextGenerator

Prompt = Sequence[int] | Sequence[Mapping[str, str]]
"""Token ids, or messages that the tokenizer's chat template renders (transformers renders it in a sandbox)."""

_MOST_TOGETHER = 16
"""Most replies that are made together step by step: more gain little, and each keeps keys and values of its tokens."""
PAGED_TOGETHER = 64
"""Most replies that grow together in pages."""
_PAGED_GROUP = 4 * PAGED_TOGETHER  # replies after which a caller is asked whether it continues
END_OF_TURN_NAMES = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "</s>",
    "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|return|>", "<|call|>",
    "<|calls|>", "<|flush|>", "<eos>", "<turn|>", "<|tool_response>",
)  # fmt: skip
"""Names llama.cpp takes for an end of generation wherever they are tokens (llama-vocab.cpp, special_eog_ids); the torch
path stops at the same ones, so that a reply ends at the same place before and after export."""


def stop_token_ids(tokenizer: Any, *declared: int | Sequence[int] | None) -> list[int]:
    """Return every token that ends a reply: the declared ones, the tokenizer's, and known end-of-turn tokens it has.

    Args:
        tokenizer: transformers tokenizer.
        declared: values of `eos_token_id` in a generation_config or config, each a number or a list.
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
    """Call `stop_token_ids` with the ends that the model's files declare; arguments as for `generate_replies`."""
    return stop_token_ids(tokenizer, *as_text_generator(model).ends)


def as_text_generator(model: Any) -> TextGenerator:
    """Return the model itself if it is a `TextGenerator`; else wrap a decoder or a model of transformers in one."""
    if isinstance(model, TextGenerator):
        return model
    from burnish_engine.models.decoder.decoder import Decoder
    from burnish_engine.models.generation.decoder_generate import DecoderGenerator
    from burnish_engine.models.generation.transformers_generate import TransformersGenerator

    return DecoderGenerator(model) if isinstance(model, Decoder) else TransformersGenerator(model)


def prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return token ids of a prompt; messages are rendered with the generation prompt and without a second BOS."""
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
        model: `TextGenerator`, decoder, or causal language model of transformers, in a PeftModel or not.
        tokenizer: tokenizer of the model.
        prompt: messages or token ids.
        sampling: choice of tokens; greedy up to 256 tokens where not given.

    Raises:
        UsageError: The prompt is empty.
    """
    ids = prompt_ids(tokenizer, prompt)
    chosen = sampling or Sampling()
    return ReplyStream(lambda stream: _stream(stream, as_text_generator(model), tokenizer, ids, chosen))


def _stream(
    stream: ReplyStream, generator: TextGenerator, tokenizer: Any, ids: list[int], sampling: Sampling
) -> Iterator[str]:
    stops = set(stop_token_ids(tokenizer, *generator.ends))
    decoder = PieceDecoder(tokenizer)
    for piece in generator.replies([ReplyRequest(ids, sampling)], stops, 1):
        stream.stopped = piece.stopped
        for token in piece.tokens:
            stream.tokens += 1
            if text := decoder.push(token):
                yield text
    if text := decoder.flush():
        yield text


def replies_at_once(prompt_tokens: int, reply_tokens: int, budget: int) -> int:
    """Return how many replies to make together so that they keep no more tokens than a budget; at least one.

    Args:
        prompt_tokens: tokens of the longest prompt.
        reply_tokens: most tokens of a reply.
        budget: most tokens that may be kept.
    """
    return min(max(budget // max(prompt_tokens + reply_tokens, 1), 1), _MOST_TOGETHER)


def reply_groups(lengths: Sequence[int], reply_tokens: int, budget: int, *, paged: bool = False) -> Iterator[list[int]]:
    """Yield groups of prompts to answer together, as indices; prompts of like lengths share a group.

    Args:
        lengths: tokens of each prompt.
        reply_tokens: most tokens of a reply.
        budget: most tokens that a group may keep; one prompt alone may have more.
        paged: whether replies take memory as they grow, so that the budget does not count.
    """
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    group: list[int] = []
    for row in order:
        most = _PAGED_GROUP if paged else replies_at_once(lengths[row], reply_tokens, budget)
        if group and len(group) >= most:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def generate_replies(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    *,
    batch_size: int | None = None,
    bases: Set[int] = frozenset(),
    samplings: Sequence[Sampling] = (),
) -> list[GeneratedReply]:
    """Generate replies to many prompts, in their order, several at a time.

    Args:
        model: `TextGenerator`, decoder, or causal language model of transformers, in a PeftModel or not.
        tokenizer: tokenizer of the model.
        prompts: messages or token ids of each prompt.
        max_new_tokens: most tokens of a reply.
        batch_size: most replies made at the same time; None: as many as the generator is good at.
        bases: places of prompts that are answered without the adapter.
        samplings: how the tokens of each reply are chosen; empty: the likeliest ones.
    """
    chosen = samplings or [Sampling(max_tokens=max_new_tokens)] * len(prompts)
    requests = [
        ReplyRequest(prompt_ids(tokenizer, prompt), sampling, place in bases)
        for place, (prompt, sampling) in enumerate(zip(prompts, chosen, strict=True))
    ]
    generator = as_text_generator(model)
    stops = set(stop_token_ids(tokenizer, *generator.ends))
    made: list[list[int]] = [[] for _ in requests]
    stopped = [False] * len(requests)
    ends: list[int | None] = [None] * len(requests)
    kinds = 1 + (0 < len(bases) < len(prompts))  # a step reads the weights once for both
    together = batch_size or (PAGED_TOGETHER * kinds if generator.is_paged else _MOST_TOGETHER)
    for piece in generator.replies(requests, stops, together):
        made[piece.request] += piece.tokens
        stopped[piece.request], ends[piece.request] = piece.stopped, piece.end
    return [
        GeneratedReply(
            tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            ended,
            len(tokens),
            tuple(tokens),
            end,
        )
        for tokens, ended, end in zip(made, stopped, ends, strict=True)
    ]


class PieceDecoder:
    """Turns tokens into text one at a time: a piece comes out once its characters are whole.

    A token may end inside a UTF-8 character, and some decoders treat a first token differently, so each piece is the
    difference between decoding a short window with and without the newest token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._window = 0
        self._done = 0

    def push(self, token: int) -> str:
        """Add a token; return the text that became whole, possibly empty."""
        self._ids.append(token)
        text = self._decode(self._ids[self._window :])
        if text.endswith("\ufffd"):
            return ""
        return self._take(text)

    def flush(self) -> str:
        """Return the rest of the text, with replacement characters where a character never became whole."""
        return self._take(self._decode(self._ids[self._window :]))

    def _take(self, text: str) -> str:
        piece = text[len(self._decode(self._ids[self._window : self._done])) :]
        self._window, self._done = self._done, len(self._ids)
        return piece

    def _decode(self, ids: Iterable[int]) -> str:
        decoded: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return decoded
