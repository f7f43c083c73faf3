"""Where torch's allocator puts tensors, without a GPU: what it would hold of the device's memory.

Follows c10/cuda/CUDACachingAllocator.cpp of torch 2.11 with expandable segments: the smallest free block that is large
enough, where the last block counts as large as it can become; 512-byte rounding; one pool for sizes up to 1 MiB. Within
0.15 GiB of eight measured passes of 2.4 to 28 GiB, where fragmentation was up to 3.6 GiB.
"""

from bisect import bisect_left

from support.memory.live_bytes import LiveBytes

MIB = 2**20
_SMALL, _SMALL_UNIT, _LARGE_UNIT, _ROUNDED = MIB, 2 * MIB, 20 * MIB, 512


class Segment:
    """Blocks in the order of their addresses, `[address, size, free]`; it grows at its end."""

    def __init__(self, unit):
        self.unit, self.mapped, self.blocks = unit, 0, []

    def take(self, size):
        index = self._best(size)
        if index is None:
            index = self._grow(size)
        address, found, _ = self.blocks[index]
        self.blocks[index] = [address, size, False]
        if found > size:
            self.blocks.insert(index + 1, [address + size, found - size, True])
        return address

    def give_back(self, address):
        index = bisect_left(self.blocks, [address])
        self.blocks[index][2] = True
        for left in (index, index - 1):
            if 0 <= left < len(self.blocks) - 1 and self.blocks[left][2] and self.blocks[left + 1][2]:
                self.blocks[left][1] += self.blocks.pop(left + 1)[1]

    def _best(self, size):
        fits = [(found, index) for index, (_, found, free) in enumerate(self.blocks[:-1]) if free and found >= size]
        if fits:
            return min(fits)[1]
        last = len(self.blocks) - 1
        return last if self.blocks and self.blocks[last][2] and self.blocks[last][1] >= size else None

    def _grow(self, size):
        if not self.blocks or not self.blocks[-1][2]:
            self.blocks.append([self.mapped, 0, True])
        more = -(-(size - self.blocks[-1][1]) // self.unit) * self.unit
        self.mapped += more
        self.blocks[-1][1] += more
        return len(self.blocks) - 1


class Allocator(LiveBytes):
    """Bytes held for the storages that are made while `counts`.

    Attributes:
        counts: Off at first.
        most: Bytes of these storages that were alive at once.
    """

    def __init__(self):
        super().__init__()
        self.counts, self.most, self._alive = False, 0, 0
        self._segments = Segment(_SMALL_UNIT), Segment(_LARGE_UNIT)
        self._places = {}

    @property
    def held(self):
        """Bytes that it took from the device."""
        return sum(segment.mapped for segment in self._segments)

    def _see(self, storage):
        key, new = storage._cdata, storage._cdata not in self._sizes
        super()._see(storage)
        if new and self.counts:
            size = max(1, -(-storage.nbytes() // _ROUNDED)) * _ROUNDED
            segment = self._segments[size > _SMALL]
            self._places[key] = segment, segment.take(size), size
            self._alive += size
            self.most = max(self.most, self._alive)

    def _forget(self, key):
        super()._forget(key)
        if key in self._places:
            segment, address, size = self._places.pop(key)
            segment.give_back(address)
            self._alive -= size
