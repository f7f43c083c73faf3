"""A copy stream for the CPU whose copies end as late as they may: a test sees what is read too early or overwritten."""

from typing_extensions import override

from burnish_engine.models.host_memory.copy_stream import CopyStream

_GARBAGE = 0xA5


class LateCopies(CopyStream):
    """Spoils the target as soon as a copy begins, and fills it when the copy is waited for."""

    def __init__(self, device):
        super().__init__(device)
        self.begun = 0

    @override
    def copy(self, source, target):
        target.fill_(_GARBAGE)
        self.begun += 1
        return source, target

    @override
    def wait(self, copied):
        if copied is not None:
            source, target = copied
            target.copy_(source)
