"""What is done with each row, in whichever process: parse, understand, render, tokenize, look for trouble."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from typing import Any

import numpy as np

from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data import noticing
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.formats import parsed
from burnish_engine.data.media import has_media_tag
from burnish_engine.data.near import bands_of
from burnish_engine.data.notes import Notes
from burnish_engine.data.problems import BrokenRowError, Place, RowError
from burnish_engine.data.shapes import Layout
from burnish_engine.data.shard import BAND_COUNT, Shard
from burnish_engine.data.spans import Rendered, Renderer
from burnish_engine.data.split_rows import exchanges, windows
from burnish_engine.data.template import ChatTemplate
from burnish_engine.data.tokenize import Encoder, Flags, Ids, TokenizerParts


@dataclass(frozen=True)
class TemplateParts:
    """A chat template as plain values.

    Attributes:
        source: Jinja source.
        special_tokens: As `ChatTemplate` takes them.
        today: What a template that asks for the date gets.
    """

    source: str
    special_tokens: dict[str, Any]
    today: date


@dataclass(frozen=True)
class Instructions:
    """All that decides what becomes of a row.

    Attributes:
        tokenizer: The tokenizer.
        template: The chat template.
        data: The recipe's settings.
    """

    tokenizer: TokenizerParts
    template: TemplateParts
    data: DataSection

    @property
    def key(self) -> str:
        """Equal where rows become the same documents, with the same notes."""
        data = self.data
        split = data.max_length if data.overlong == "split" else 0
        settings = (data.shape, tuple(data.columns), data.encoding, data.learn, data.system_prompt, split)
        actions = (
            data.broken_rows, data.degenerate, data.secrets, data.addresses, data.damaged, data.control_tokens,
            data.tools, data.placeholders,
        )  # fmt: skip
        whole = repr((self.tokenizer, self.template, settings, actions))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@dataclass(frozen=True)
class Batch:
    """Some rows of one part.

    Attributes:
        source: Index of the part.
        name: The part's name.
        layout: What its columns mean.
        position: Place of the first row among the part's rows, from 0.
        rows: (number, JSON text, why it cannot be read or an empty text).
    """

    source: int
    name: str
    layout: Layout
    position: int
    rows: Sequence[tuple[int, str, str]]


@dataclass(frozen=True)
class _Usable:
    position: int
    row: int
    conversation: Conversation
    rendered: Rendered


class Worker:
    """Turns batches of rows into shards.

    Args:
        instructions: What decides.
    """

    def __init__(self, instructions: Instructions) -> None:
        parts, template = instructions.tokenizer, instructions.template
        self._data = instructions.data
        self._encoder = Encoder(parts)
        self._renderer = Renderer(
            ChatTemplate(template.source, template.special_tokens, today=template.today),
            parts.eos_token,
            parts.added,
            text_bos=parts.adds_bos,
            learn=self._data.learn,
        )
        special = sorted(set(parts.special), key=len, reverse=True)
        self._control_tokens = re.compile("|".join(map(re.escape, special)) or "(?!)")

    def work(self, batch: Batch) -> Shard:
        """The documents of some rows.

        Raises:
            BrokenRowError: A row cannot be read, and the recipe does not say to go on without such.
            DataError: The template is hostile.
        """
        notes = Notes(rows=len(batch.rows))
        usable = list[_Usable]()
        for position, (number, text, problem) in enumerate(batch.rows, start=batch.position):
            try:
                if problem:
                    raise RowError(problem)
                conversation = self.conversation(batch.layout, batch.name, number, text)
                self._notice(conversation, Place(batch.source, number), notes)
                pieces = [
                    _Usable(position, number, piece, self._renderer.render(piece))
                    for piece in self._pieces(conversation)
                ]
            except RowError as error:
                notes.dropped.add(error.reason, Place(batch.source, number))
            else:
                for piece in pieces:
                    self._note(piece.conversation, piece.rendered, Place(batch.source, number), notes)
                usable.extend(pieces)
        encoded = self._encoder.encode([item.rendered for item in usable])
        return self._shard(batch.source, usable, encoded, notes)

    def conversation(self, layout: Layout, name: str, number: int, text: str) -> Conversation:
        """The conversation in a row.

        Raises:
            RowError: It cannot be used, or not be read where the recipe says to go on without such.
            BrokenRowError: It cannot be read.
        """
        try:
            values = parsed(text, name, number)
        except BrokenRowError as error:
            if self._data.broken_rows == "drop":
                raise RowError(error.reason) from None
            raise
        return layout.conversation(values, number, name, self._data.system_prompt)

    def _pieces(self, conversation: Conversation) -> Sequence[Conversation]:
        if self._data.overlong != "split" or conversation.text is not None:
            return [conversation]
        return exchanges(conversation, self._data.max_length, self._length)

    def _length(self, conversation: Conversation) -> int:
        """Tokens of a conversation; more than any limit where it cannot be rendered."""
        try:
            rendered = self._renderer.render(conversation)
        except RowError:
            return 2**31
        return len(self._encoder.encode([rendered])[0][0])

    def _notice(self, conversation: Conversation, place: Place, notes: Notes) -> None:
        """Look for trouble in what a row says; and for tools and thoughts.

        Raises:
            RowError: There is some that the recipe does not want.
        """
        texts = [conversation.text or "", *(message.content for message in conversation.messages)]
        whole = "\n".join(texts)
        data = self._data
        control = next(filter(None, map(self._control_tokens.search, texts)), None)
        if conversation.spans is not None:
            control = None  # rows of segments spell their tokens out on purpose
        placeholder = noticing.placeholder_in(conversation)
        degenerate = noticing.degenerate_in(conversation)
        unwritten = conversation.tools and not self._renderer.adapter.takes_tools
        found = [
            *((what, data.secrets) for what in noticing.secrets_in(whole)),
            *((what, data.damaged) for what in noticing.damage_in(whole)),
            *([(degenerate, data.degenerate)] if degenerate else []),
            *([(noticing.EMAIL, data.addresses)] if noticing.addresses_in(whole) else []),
            *([(noticing.CONTROL, data.control_tokens)] if control else []),
            *([(noticing.TOOLS, data.tools)] if unwritten else []),
            *([(noticing.PLACEHOLDER, data.placeholders)] if placeholder else []),
            *([(noticing.MEDIA_TAG, "keep")] if has_media_tag(texts) else []),
        ]
        for what, setting in found:
            if setting == "drop":
                raise RowError(f"looks like {what}" if what in noticing.SECRETS else what)
        for what, _ in found:
            notes.noticed.add(what, place)
        if control:
            notes.control_example = notes.control_example or control[0]
        if placeholder:
            notes.shown.setdefault(noticing.PLACEHOLDER, placeholder)
        notes.called += any("tool_calls" in message.extras for message in conversation.messages)
        notes.thoughtful += any("reasoning_content" in message.extras for message in conversation.messages)

    def _note(self, conversation: Conversation, rendered: Rendered, place: Place, notes: Notes) -> None:
        if conversation.text is not None:
            return
        if rendered.turn_end:
            notes.turn_ends = sorted({*notes.turn_ends, rendered.turn_end})
        elif conversation.messages[-1].role == "assistant":
            notes.noticed.add(noticing.OPEN, place)
        if rendered.prompt_differs:
            notes.noticed.add(noticing.OTHERWISE, place)

    def _shard(
        self, source: int, usable: Sequence[_Usable], encoded: Sequence[tuple[Ids, Flags]], notes: Notes
    ) -> Shard:
        tokens, spans, rows = list[Ids](), list[Any](), list[tuple[int, int]]()
        token_ends, span_ends, digests, bands = list[int](), list[int](), list[int](), list[Any]()
        cut = self._data.max_length if self._data.overlong == "split" else 0
        for item, (ids, learned) in zip(usable, encoded, strict=True):
            text = conversation_text(item.conversation)
            digest, band = _digest(item.conversation), bands_of(text)
            for piece, flags in windows(ids, learned, cut if item.conversation.text is not None else 0):
                found = _learned_spans(flags)
                tokens.append(piece)
                spans.append(found)
                token_ends.append((token_ends[-1] if token_ends else 0) + len(piece))
                span_ends.append((span_ends[-1] if span_ends else 0) + len(found))
                rows.append((item.row, item.position))
                digests.append(digest if cut == 0 else _with_ids(digest, piece))
                bands.append(band)
        places = np.array(rows, dtype=np.int64).reshape(-1, 2)
        notes.used = len(np.unique(places[:, 1]))
        return Shard(
            tokens=np.concatenate(tokens).astype(np.int32) if tokens else np.zeros(0, dtype=np.int32),
            token_ends=np.array(token_ends, dtype=np.int64),
            spans=np.concatenate(spans).astype(np.int32) if spans else np.zeros((0, 2), dtype=np.int32),
            span_ends=np.array(span_ends, dtype=np.int64),
            rows=places[:, 0].copy(),
            sources=np.full(len(places), source, dtype=np.int64),
            positions=places[:, 1].copy(),
            digests=np.array(digests, dtype=np.int64),
            bands=np.array(bands, dtype=np.uint32).reshape(-1, BAND_COUNT),
            notes=notes,
        )


def conversation_text(conversation: Conversation) -> str:
    """What a row says, without the system message, which many rows share."""
    if conversation.text is not None:
        return conversation.text
    return "\n".join(message.content for message in conversation.messages if message.role != "system")


def _digest(conversation: Conversation) -> int:
    hashed = blake2b(digest_size=8)
    parts: list[Any] = [conversation.text, conversation.messages, conversation.tools]
    for part in [*parts, *([conversation.spans] if conversation.spans else [])]:
        hashed.update(repr(part).encode("utf-8", "surrogatepass"))
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _with_ids(digest: int, ids: Ids) -> int:
    """The digest of one piece of a row."""
    hashed = blake2b(digest.to_bytes(8, "little", signed=True) + ids.tobytes(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _learned_spans(flags: Flags) -> Any:
    """[spans, 2] first and one past the last of each run of learned tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)
