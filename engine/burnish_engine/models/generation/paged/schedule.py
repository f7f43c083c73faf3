"""The schedule of replies in slots: who begins, how many steps run at once, who waits when pages run out.

The host never knows exactly how long a reply is, because steps are launched before the last ones are read. It counts
upper bounds instead, and a reply that has ended rests until that is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from burnish_engine.models.generation.paged.pages import Pages
from burnish_engine.models.generation.paged.slots import ReplySlots, SlotReadback
from burnish_engine.models.generation.text_generator import ReplyPiece, ReplyRequest
from burnish_kernels.paged_attention.op import PAGE

if TYPE_CHECKING:
    import torch

MOST_STEPS = 16
"""Most steps launched before the host looks again."""
BESIDE_TOKENS = 1024
"""Tokens of prompts read between two steps of replies that grow, so that those do not stall."""
_CHUNK_S = 0.05  # steps of slow models are launched for about this long, so that replies keep flowing


@dataclass(eq=False)
class _GrowingReply:
    """A reply in a slot.

    Attributes:
        number: number of the request.
        request: the request.
        made: tokens that the host knows.
        before: how many of them were part of the prompt that was read last.
        slot: where it grows.
        pages: its pages, in order.
        most: most tokens that prompt and reply may have by now.
    """

    number: int
    request: ReplyRequest
    made: list[int] = field(default_factory=list)
    before: int = 0
    slot: int = -1
    pages: list[int] = field(default_factory=list)
    most: int = 0

    @property
    def text(self) -> list[int]:
        """Tokens of prompt and reply that the host knows."""
        return [*self.request.ids, *self.made]

    @property
    def left(self) -> int:
        """Most steps that may still be launched for it."""
        return len(self.request.ids) + self.request.sampling.max_tokens - self.most


@dataclass(eq=False)
class _Entry:
    """Replies that begin together.

    Attributes:
        replies: the replies.
        leaders: reply that reads each text, by whether it is without the adapter, and the text.
        twins: slot of the reply that reads the same text, by that of one that does not.
        copied: pages that are filled from others.
        read: tokens that were read of a long text, which is the only one then.
    """

    replies: list[_GrowingReply] = field(default_factory=list)
    leaders: dict[tuple[bool, tuple[int, ...]], _GrowingReply] = field(default_factory=dict)
    twins: dict[int, int] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)
    read: int = 0


class _Flight(NamedTuple):
    """Steps whose tokens are not read yet, and the replies that they are of."""

    readback: SlotReadback
    replies: dict[int, _GrowingReply]
    steps: int
    began: float


class Schedule:
    """Replies to requests, as `TextGenerator.replies` makes them.

    Args:
        slots: slots, of which no reply is in use.
        pages: number of their pages, page 0 included.
        prompt_tokens: tokens of prompts read at once where no reply grows, unless one alone has more and is read whole.
        requests: the replies wanted.
        stops: tokens that end a reply.
        turn: number of tokens at which a text's keys are rotated otherwise, so that it is read again; None: never.
        most: most replies that grow together, where a reply's bits must not depend on the others; None: bits do not
            count, and all slots are used.
    """

    def __init__(
        self,
        slots: ReplySlots,
        pages: int,
        prompt_tokens: int,
        requests: Sequence[ReplyRequest],
        stops: Set[int],
        turn: int | None = None,
        most: int | None = None,
    ) -> None:
        self._most = most
        self._slots, self._prompt_tokens, self._stops, self._turn = slots, prompt_tokens, stops, turn
        self._pages = Pages(pages)
        self._waiting = deque(_GrowingReply(number, request) for number, request in enumerate(requests))
        self._replies: dict[int, _GrowingReply] = {}
        self._flights: deque[_Flight] = deque()
        self._depth = 1 if slots.is_captured else 0
        self._step_s = 0.0
        self._pieces: list[ReplyPiece] = []
        self._reading: _Entry | None = None
        self._is_behind = False

    def run(self) -> Iterator[list[ReplyPiece]]:
        """Yield what was read, until every reply is whole.

        Between two yields the caller enters the mode that the decoder computes in.

        Raises:
            MemoryError: The pages do not hold the longest text.
        """
        while self._waiting or self._replies or self._flights or self._reading:
            while self._admit() and self._most is not None:
                pass  # prompts are read one by one
            self._turn_around()
            steps = self._steps()
            if steps:
                self._launch(steps)
            while len(self._flights) > (self._depth if steps else 0):
                self._land()
            pieces, self._pieces = self._pieces, []
            yield pieces

    def _admit(self) -> bool:
        """Let waiting replies begin in free slots, as long as their prompts have pages; return whether any began."""
        if self._reading is not None:
            return self._read_on(self._reading)
        free = [slot for slot in range(self._slots.count) if slot not in self._replies]
        if self._most is not None:
            free = free[: max(self._most - len(self._replies), 0)]
        entry, limit, tokens = _Entry(), self._limit, 0
        self._is_behind = False
        while self._waiting and free:
            reply = self._waiting[0]
            text = self._text(reply)
            key = (reply.request.base, tuple(text))
            leader = entry.leaders.get(key)
            shared = leader.pages[: len(text) // PAGE] if leader is not None else []
            wanted = len(text) // PAGE + 1 - len(shared)
            others = [*self._replies.values(), *entry.replies]
            if wanted + self._reserve(others) > self._pages.free and others:
                break
            if leader is None and tokens and (tokens + len(text) > limit or self._most is not None):
                self._is_behind = True
                break
            if wanted > self._pages.free:
                raise MemoryError(f"a text of {len(text)} tokens needs {wanted} pages, {self._pages.free} are free")
            self._waiting.popleft()
            reply.slot, reply.before, reply.most = free.pop(0), len(text) - len(reply.request.ids), len(text) + 1
            reply.pages = self._pages.share(shared) + self._pages.take(wanted)
            self._slots.table[reply.slot, : len(reply.pages)] = reply.pages
            entry.replies.append(reply)
            if leader is None:
                entry.leaders[key] = reply
                tokens += len(text)
            else:
                entry.twins[reply.slot] = leader.slot
                if len(text) % PAGE:
                    entry.copied[reply.pages[-1]] = leader.pages[len(shared)]
        if not entry.replies:
            return False
        self._slots.publish_table()
        if tokens > limit and self._slots.reads_chunks:
            self._reading = entry
            return self._read_on(entry)
        self._begin(entry)
        return True

    @property
    def _limit(self) -> int:
        """Tokens of prompts that are read at once; of a longer one, where it can be read in chunks, those of a chunk.

        Beside replies that grow they are few. Where bits count, they are always as many: a prompt's chunks must not
        depend on other replies.
        """
        if self._most is not None:
            return BESIDE_TOKENS
        return min(BESIDE_TOKENS, self._prompt_tokens) if self._replies else self._prompt_tokens

    def _read_on(self, entry: _Entry) -> bool:
        """Read the next chunk of a long text; return whether its replies began."""
        (((base, text), leader),) = entry.leaders.items()
        end = min(entry.read + self._limit, len(text))
        hidden_1H = self._slots.read_on(leader.slot, text, entry.read, end, base=base)
        entry.read = end
        if end < len(text):
            return False
        self._reading = None
        self._begin(entry, hidden_1H)
        return True

    def _begin(self, entry: _Entry, hidden_BH: torch.Tensor | None = None) -> None:
        """Let replies begin, whose texts are read now where no hidden states are given."""
        self._replies.update((reply.slot, reply) for reply in entry.replies)
        samplings = {
            reply.slot: replace(reply.request.sampling, max_tokens=reply.request.sampling.max_tokens - reply.before)
            for reply in entry.replies
        }
        bases = {reply.slot for reply in entry.replies if reply.request.base}
        texts = {reply.slot: list(text) for (_, text), reply in entry.leaders.items()}
        self._slots.begin(texts, samplings, entry.twins, bases, hidden_BH)
        self._slots.copy_pages(entry.copied)
        self._fly(0)

    def _text(self, reply: _GrowingReply) -> list[int]:
        """Return the tokens that a reply begins with: what it has, unless tokens must be made as they were before.

        A token that is read has other bits than one that was made, so a reply whose bits count makes all again, but for
        those before its keys were rotated otherwise.
        """
        text, own, turned = reply.text, len(reply.request.ids), (self._turn or 0) + 1
        if self._most is None:
            return text
        return text[:turned] if self._turn is not None and own < turned <= len(text) else text[:own]

    def _reserve(self, replies: Sequence[_GrowingReply]) -> int:
        """Return how many pages are kept for replies that grow: one each, so that none is sent away soon."""
        room = (-(-(reply.most + reply.left) // PAGE) - len(reply.pages) for reply in replies)
        return sum(min(missing, 1) for missing in room)

    def _turn_around(self) -> None:
        """Send replies back whose text is just long enough to be rotated as a long one: it is read again."""
        if self._turn is None:
            return
        if any(reply.most == self._turn + 1 and reply.left for reply in self._turning()):
            self._land_all()
            for reply in self._turning():
                if len(reply.text) == self._turn + 1:
                    self._send_back(reply)
            self._admit()

    def _turning(self) -> list[_GrowingReply]:
        """Return the replies that were read as short texts."""
        turn = self._turn or 0
        return [reply for reply in self._replies.values() if len(reply.request.ids) + reply.before <= turn]

    def _steps(self) -> int:
        """Return how many steps to launch; make sure that every reply has pages for them."""
        while True:
            wanted = min(MOST_STEPS, max((reply.left for reply in self._replies.values()), default=0))
            if self._step_s:
                wanted = min(wanted, max(1, int(_CHUNK_S / self._step_s)))
            if self._depth == 0 or self._is_behind or self._reading is not None:
                wanted = min(wanted, 1)
            if self._turn is not None:
                wanted = min([wanted, *(self._turn + 1 - reply.most for reply in self._turning() if reply.left)])
            needed = sum(self._missing(reply, wanted) for reply in self._replies.values())
            if needed <= self._pages.free:
                return wanted
            if self._flights:
                self._land_all()
                continue
            if self._reading is not None:
                for reply in reversed(self._reading.replies):
                    self._wait_again(reply)
                self._reading = None
                continue
            newest = min(self._replies.values(), key=lambda reply: (len(reply.made), -reply.number))
            if len(self._replies) == 1:
                raise MemoryError(f"a reply of {len(newest.text)} tokens with its prompt has no page to grow")
            self._send_back(newest)

    def _missing(self, reply: _GrowingReply, steps: int) -> int:
        """Return how many more pages a reply needs for some steps."""
        tokens = reply.most + min(steps, reply.left)
        return max(0, -(-tokens // PAGE) - len(reply.pages))

    def _launch(self, steps: int) -> None:
        count = self._compact()
        grown = False
        for reply in self._replies.values():
            missing = self._missing(reply, steps)
            if missing:
                first = len(reply.pages)
                reply.pages += self._pages.take(missing)
                self._slots.table[reply.slot, first : len(reply.pages)] = reply.pages[first:]
                grown = True
            reply.most += min(steps, reply.left)
        if grown:
            self._slots.publish_table()
        began = time.perf_counter()
        for _ in range(steps):
            self._slots.step(count)
        self._fly(steps, began)

    def _compact(self) -> int:
        """Move replies to the first slots where that halves a step; return the slots of a step, a power of two."""
        if self._most is not None:
            return self._slots.count
        size = _power_of_two(max(self._replies) + 1)
        wanted = _power_of_two(len(self._replies))
        if wanted < size and not self._waiting and self._reading is None:
            free = (slot for slot in range(wanted) if slot not in self._replies)
            targets = {slot: next(free) for slot in sorted(self._replies) if slot >= wanted}
            self._slots.move(targets)
            for old, new in targets.items():
                reply = self._replies[new] = self._replies.pop(old)
                reply.slot = new
                self._slots.table[new] = self._slots.table[old]
            self._slots.publish_table()
            size = wanted
        return min(size, self._slots.count)

    def _fly(self, steps: int, began: float = 0.0) -> None:
        self._flights.append(_Flight(self._slots.read_later(), dict(self._replies), steps, began))

    def _land_all(self) -> None:
        while self._flights:
            self._land()

    def _land(self) -> None:
        """Read the oldest steps' tokens."""
        flight = self._flights.popleft()
        live, made, recent = flight.readback.wait(self._slots.count)
        if flight.steps:
            self._step_s = (time.perf_counter() - flight.began) / flight.steps / (1 + self._depth)
        for slot, reply in flight.replies.items():
            if self._replies.get(reply.slot) is not reply:
                continue  # it ended, or was sent back, before
            known = len(reply.made) - reply.before
            tokens = [int(recent[slot, place % recent.shape[1]]) for place in range(known, int(made[slot]))]
            ended = not live[slot]
            if not tokens and not ended:
                continue
            stopped = bool(tokens) and tokens[-1] in self._stops
            end = tokens.pop() if stopped else None
            reply.made += tokens
            self._pieces.append(ReplyPiece(reply.number, tokens, ended, stopped, end))
            if ended:
                self._leave(reply)

    def _leave(self, reply: _GrowingReply) -> None:
        del self._replies[reply.slot]
        self._pages.give_back(reply.pages)
        reply.pages = []

    def _wait_again(self, reply: _GrowingReply) -> None:
        self._pages.give_back(reply.pages)
        reply.pages = []
        self._waiting.appendleft(reply)

    def _send_back(self, reply: _GrowingReply) -> None:
        """Let a reply wait with what it has; its text is read again later. Nothing of it may be in flight."""
        self._slots.end([reply.slot])
        del self._replies[reply.slot]
        self._wait_again(reply)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
