"""Blind votes: kept with the run, counted, and never overwritten where they cannot be read."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.votes import add_vote, count_votes, read_votes
from burnish_engine.contract.paths import RunPaths


@pytest.fixture
def paths(tmp_path):
    return RunPaths(tmp_path)


def test_votes_are_kept_and_counted(paths):
    for best in ("tuned", "tuned", "base", ""):
        found = add_vote(paths, "Hello?", ["base", "tuned"], best)
    assert (found.votes, found.equal) == (4, 1)
    assert list(found.wins.items()) == [("tuned", 2), ("base", 1)]
    assert count_votes(read_votes(paths)) == found
    assert "tuned 2" in found.text


def test_a_model_that_never_won_is_named_too(paths):
    assert add_vote(paths, "x", ["base", "tuned", "file"], "file").wins == {"file": 1, "base": 0, "tuned": 0}


def test_no_votes_are_no_text(paths):
    assert read_votes(paths) == []
    assert count_votes([]).text == ""


@pytest.mark.parametrize(
    ("shown", "best"),
    [(["a"], "a"), (["a", "b"], "c"), (["a", "a"], ""), (["a", "b", "c", "d"], "a"), (["a", ""], "a")],
)
def test_a_vote_that_makes_no_sense_is_refused(paths, shown, best):
    with pytest.raises(UsageError):
        add_vote(paths, "x", shown, best)
    assert not paths.votes.exists()


def test_a_long_prompt_is_cut(paths):
    add_vote(paths, "x" * 10_000, ["a", "b"], "a")
    assert 0 < len(read_votes(paths)[0].prompt) < 10_000


def test_damaged_votes_are_told_and_stay(paths):
    paths.votes.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError):
        add_vote(paths, "x", ["a", "b"], "a")
    assert paths.votes.read_text(encoding="utf-8") == "{"
