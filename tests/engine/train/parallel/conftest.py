import gc

import pytest

from support.ranks import SharedEngine


@pytest.fixture
def shared():
    """Make a shared engine from the arguments of `SharedEngine`; all are closed at the end."""
    made = []

    def make(*arguments, **options):
        made.append(SharedEngine(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    made.clear()
    gc.collect()
