"""A copy stream for the CPU whose work ends as late as it may: a test sees what is read too early or overwritten."""

from functools import partial

from typing_extensions import override

from burnish_engine.models.host_memory.copy_stream import CopyStream

_GARBAGE = 0xA5


class LateCopies(CopyStream):
    """Spoils the target as soon as a copy begins, and fills it when the copy is waited for; so too with other work."""

    def __init__(self, device):
        super().__init__(device)
        self.begun = 0

    @override
    def copy_all(self, pairs):
        pairs = list(pairs)
        for _, target in pairs:
            target.fill_(_GARBAGE)
        self.begun += 1
        return [partial(target.copy_, source) for source, target in pairs]

    @override
    def run(self, work):
        self.begun += 1
        return [work]

    @override
    def wait(self, copied):
        for work in copied or ():
            work()
