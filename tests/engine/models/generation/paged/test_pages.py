"""Pages are free, used or shared, and none is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish_engine.models.generation.paged.pages import Pages


def test_pages_that_are_not_there_are_not_given():
    pages = Pages(4)
    assert pages.free == 3
    taken = pages.take(3)
    assert sorted(taken) == [1, 2, 3]
    with pytest.raises(MemoryError, match="1 pages are wanted and 0 are free"):
        pages.take(1)
    pages.give_back(taken[:1])
    assert pages.take(1) == taken[:1]


def test_a_shared_page_is_free_once_nobody_uses_it():
    pages = Pages(3)
    (page,) = pages.take(1)
    assert pages.share([page]) == [page]
    pages.give_back([page])
    assert pages.free == 1
    pages.give_back([page])
    assert pages.free == 2


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "give"]), st.integers(1, 4)), max_size=60))
def test_no_page_is_given_twice_or_lost(moves):
    pages, held = Pages(10), []
    for move, count in moves:
        if move == "take" and count <= pages.free:
            taken = pages.take(count)
            assert 0 not in taken
            assert not set(taken) & {page for one in held for page in one}
            held.append(taken)
        elif move == "share" and held:
            held.append(pages.share(held[count % len(held)]))
        elif held:
            pages.give_back(held.pop(count % len(held)))
        assert pages.free == 9 - len({page for one in held for page in one})
