"""Chat with a model folder, with or without an adapter, on our decoder, or through transformers where needed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.chat.prompt import Messages, chat_ids, tokenizer_template
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.garbage import collect_as_usual
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.generation.generate import generate_replies, generate_stream, reply_groups
from burnish_engine.models.generation.sampling import GeneratedReply, ReplyStream, Sampling
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_engine.models.saved_adapters.base_checks import refuse_other_tokens

if TYPE_CHECKING:
    import torch

    from burnish_engine.models.generation.decoder_generate import DecoderGenerator
    from burnish_engine.models.generation.transformers_generate import TransformersGenerator


class TorchChat:
    """`ChatBackend` on a base model, or a base model with an adapter.

    With an adapter one loaded model serves both: `use_adapter` selects which of the two answers.

    Args:
        source: base model.
        adapter: folder of the PEFT adapter, or None for the base.
        precision: number format of the base weights, "fp32" or "bf16".
        device: device to compute on; by default the CPU.
        label: word behind the model's name while the adapter answers.
        exact: whether a reply has the same bits whatever others are asked for.

    Attributes:
        note: reason, in a sentence, why transformers answers instead of our decoder; empty where it does not.

    Raises:
        SetupError: Base, tokenizer or adapter cannot be loaded.
    """

    def __init__(
        self,
        source: ModelSource,
        adapter: Path | None = None,
        *,
        precision: str = "fp32",
        device: torch.device | None = None,
        label: str = "tuned",
        exact: bool = False,
    ) -> None:
        import torch

        from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
        from burnish_engine.models.generation.load_fast import load_for_generation

        if adapter is not None:
            refuse_other_tokens(read_files(adapter), source)
        self._tokenizer = load_tokenizer(source)
        self._template = tokenizer_template(self._tokenizer)
        device = device or torch.device("cpu")
        fast, self.note = load_for_generation(source, adapter, precision, device, exact=exact)
        self._generator: DecoderGenerator | TransformersGenerator | None = fast or _plain(
            source, adapter, precision, device, exact=exact
        )
        self._base_name = f"{source.name} (tuned)" if source.trained else source.name
        self._label = label
        self._has_adapter = self._adapted = adapter is not None
        collect_as_usual()
        self._context = source.spec.max_context if source.spec is not None else None

    @property
    def name(self) -> str:
        """Name of the model, and which adapter answers."""
        return f"{self._base_name} ({self._label})" if self._adapted else self._base_name

    def use_adapter(self, use: bool) -> None:
        """Answer from now on with or without the adapter; not allowed while a reply is streamed.

        Raises:
            UsageError: There is no adapter.
        """
        if use and not self._has_adapter:
            raise UsageError(f"{self._base_name} was opened without an adapter.", "Open it with one.")
        if self._generator is not None and use != self._adapted:
            self._generator.use_adapter(use)
        self._adapted = use

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation."""
        if self._generator is None:
            raise UsageError(f"{self.name} was closed.", "Open it again.")
        ids = chat_ids(self._tokenizer, messages, self._template)
        if self._context is not None and len(ids) >= self._context:
            raise UsageError(
                f"The conversation has {len(ids)} tokens and {self.name} was made for {self._context}.",
                "Start a new conversation.",
            )
        return generate_stream(self._generator, self._tokenizer, ids, options)

    def replies(
        self, chats: Sequence[Messages], max_tokens: int, *, together: int, answered: Callable[[int], None]
    ) -> list[GeneratedReply]:
        """Answer many conversations greedily, several at a time.

        A conversation that does not fit the model's context has an empty reply.

        Args:
            chats: conversations.
            max_tokens: most tokens of a reply.
            together: most tokens of conversations and replies that are held at once.
            answered: callback given the number of replies that are made.
        """
        return self._answer(chats, max_tokens, (False,), together=together, answered=answered)

    def draws(self, chats: Sequence[Messages], samplings: Sequence[Sampling], *, together: int) -> list[GeneratedReply]:
        """Answer conversations, each as its sampling says, several at a time.

        Args:
            chats: conversations.
            samplings: how the tokens of each reply are chosen.
            together: most tokens of conversations and replies that are held at once.

        Raises:
            UsageError: The model was closed, or its template refuses a conversation.
        """
        if self._generator is None:
            raise UsageError(f"{self.name} was closed.", "Open it again.")
        ids = [chat_ids(self._tokenizer, messages, self._template) for messages in chats]
        longest = max(sampling.max_tokens for sampling in samplings)
        found = dict[int, GeneratedReply]()
        for group in reply_groups([len(one) for one in ids], longest, together, paged=self._generator.is_paged):
            prompts, chosen = [ids[row] for row in group], [samplings[row] for row in group]
            made = generate_replies(self._generator, self._tokenizer, prompts, longest, samplings=chosen)
            found.update(zip(group, made, strict=True))
        return [found[row] for row in range(len(chats))]

    def replies_of_both(
        self, chats: Sequence[Messages], max_tokens: int, *, together: int, answered: Callable[[int], None]
    ) -> tuple[list[GeneratedReply], list[GeneratedReply]]:
        """Answer many conversations without the adapter and with it; arguments as for `replies`.

        Each conversation is tokenized once. On a GPU both replies grow in the same steps, which read the weights once
        for both; keys and values of the prompts differ, so they are computed for each.

        Returns:
            The replies of the base, and those of the tuned model.

        Raises:
            UsageError: There is no adapter, or the model was closed.
        """
        self.use_adapter(use=True)
        made = self._answer(chats, max_tokens, (True, False), together=together, answered=answered)
        return made[::2], made[1::2]

    def _answer(
        self,
        chats: Sequence[Messages],
        max_tokens: int,
        kinds: Sequence[bool],
        *,
        together: int,
        answered: Callable[[int], None],
    ) -> list[GeneratedReply]:
        """Answer each conversation once for each kind: whether it is without the adapter."""
        if self._generator is None:
            raise UsageError(f"{self.name} was closed.", "Open it again.")
        ids = [chat_ids(self._tokenizer, messages, self._template) for messages in chats]
        fits = [self._context is None or len(tokens) < self._context for tokens in ids]
        found = dict.fromkeys(
            ((row, base) for row, fit in enumerate(fits) if not fit for base in kinds),
            GeneratedReply("", stopped=False, tokens=0),
        )
        left = [(row, base) for row, fit in enumerate(fits) if fit for base in kinds]
        paged = self._generator.is_paged
        for group in reply_groups([len(ids[row]) for row, _ in left], max_tokens, together, paged=paged):
            own = [left[place] for place in group]
            bases = {place for place, (_, base) in enumerate(own) if base}
            prompts = [ids[row] for row, _ in own]
            made = generate_replies(self._generator, self._tokenizer, prompts, max_tokens, bases=bases)
            found.update(zip(own, made, strict=True))
            answered(len(found))
        return [found[row, base] for row in range(len(ids)) for base in kinds]

    def close(self) -> None:
        """Free the model, and the GPU's memory."""
        import torch

        self._generator = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _plain(
    source: ModelSource, adapter: Path | None, precision: str, device: torch.device, *, exact: bool
) -> TransformersGenerator:
    from burnish_engine.models.generation.transformers_generate import TransformersGenerator
    from burnish_engine.models.transformers_path.plain import load_adapter, load_base

    model = load_base(source, precision, device)
    return TransformersGenerator(load_adapter(model, adapter).eval() if adapter is not None else model, exact=exact)
